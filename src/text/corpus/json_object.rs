//! Reading one string of a JSON object, whatever is in its other fields.
//!
//! Corpora come from many programs: `NaN`, numbers that no float holds, halves of characters, bytes of another encoding
//! or a thousand nested lists in a field that nobody asked for are no reason to lose a document. So other values are
//! only passed over, by their quotes and brackets, without recursion, and a text is repaired with U+FFFD.

use std::borrow::Cow;
use std::ops::Range;

/// Why bytes are no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// They end within it.
    Incomplete,
    /// They are something else.
    NoObject,
}

/// A member of an object: the ranges of its key, without quotes, and of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
}

/// The members of an object, one after the other.
pub(super) struct Members<'a> {
    bytes: &'a [u8],
    at: usize,
    begun: bool,
    /// The member within which the bytes end.
    pub(super) unfinished: Option<Member>,
}

/// A string of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) text: String,
    /// Whether U+FFFD stands for something.
    pub(super) repaired: bool,
}

/// The wanted strings of an object; of a repeated key, the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) text: Option<Text>,
    pub(super) domain: Option<Text>,
}

/// The strings `column` and `domain` of a whole object.
pub(super) fn wanted(bytes: &[u8], column: &str) -> Result<Wanted, Malformed> {
    let mut members = Members::new(bytes);
    let (mut text, mut domain) = (None, None);
    while let Some(Member { key, value }) = members.next()? {
        let key = &bytes[key];
        if is_key(key, column) {
            text = Some(value);
        } else if is_key(key, "domain") {
            domain = Some(value);
        }
    }
    if !members.rest().iter().all(u8::is_ascii_whitespace) {
        return Err(Malformed::NoObject);
    }
    let string = |value: Range<usize>| match &bytes[value] {
        [b'"', inner @ .., b'"'] => Some(unescaped(inner)),
        _ => None,
    };
    Ok(Wanted { text: text.and_then(string), domain: domain.and_then(string) })
}

/// Whether a whole object has a member of one of these names.
pub(super) fn has_member(bytes: &[u8], names: &[&str]) -> Result<bool, Malformed> {
    let (mut members, mut found) = (Members::new(bytes), false);
    while let Some(Member { key, .. }) = members.next()? {
        found |= is_one_of(&bytes[key], names);
    }
    if members.rest().iter().all(u8::is_ascii_whitespace) { Ok(found) } else { Err(Malformed::NoObject) }
}

/// Whether a key, as it is written, is one of these names.
pub(super) fn is_one_of(written: &[u8], names: &[&str]) -> bool {
    names.iter().any(|name| is_key(written, name))
}

/// Whether a key, as it is written, is this name.
pub(super) fn is_key(written: &[u8], name: &str) -> bool {
    if written.contains(&b'\\') { unescaped(written).text == name } else { written == name.as_bytes() }
}

impl<'a> Members<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, begun: false, unfinished: None }
    }

    /// The next member; `None` at the end of the object.
    pub(super) fn next(&mut self) -> Result<Option<Member>, Malformed> {
        let first = self.mark()?;
        match (self.begun, first) {
            (false, b'{') => self.at += 1,
            (true, b',') => self.at += 1,
            (true, b'}') => {
                self.at += 1;
                return Ok(None);
            }
            _ => return Err(Malformed::NoObject),
        }
        let empty = !self.begun && self.mark()? == b'}';
        self.begun = true;
        if empty {
            return self.next();
        }
        let key = self.string()?;
        if self.mark()? != b':' {
            return Err(Malformed::NoObject);
        }
        self.at += 1;
        self.mark()?;
        let start = self.at;
        self.value().inspect_err(|_| {
            self.unfinished = Some(Member { key: key.clone(), value: start..self.bytes.len() });
        })?;
        Ok(Some(Member { key, value: start..self.at }))
    }

    /// What stands behind the object.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next byte that is no white space.
    fn mark(&mut self) -> Result<u8, Malformed> {
        let blank = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.at += blank;
        self.bytes.get(self.at).copied().ok_or(Malformed::Incomplete)
    }

    /// Passes over a string and gives the range between its quotes.
    fn string(&mut self) -> Result<Range<usize>, Malformed> {
        if self.mark()? != b'"' {
            return Err(Malformed::NoObject);
        }
        let start = self.at + 1;
        let length = string_bytes(&self.bytes[self.at..]).ok_or(Malformed::Incomplete)?;
        self.at += length;
        Ok(start..self.at - 1)
    }

    /// Passes over a value of any kind.
    fn value(&mut self) -> Result<(), Malformed> {
        let mut depth = 0usize;
        loop {
            match self.mark()? {
                b'"' => _ = self.string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' | b':' if depth > 0 => self.at += 1,
                b'}' | b']' | b',' | b':' => return Err(Malformed::NoObject),
                _ => {
                    let is_part = |byte: &&u8| !byte.is_ascii_whitespace() && !b"{}[],:\"".contains(*byte);
                    self.at += self.bytes[self.at..].iter().take_while(is_part).count();
                    if self.at == self.bytes.len() {
                        return Err(Malformed::Incomplete);
                    }
                }
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

/// The length of a string at the beginning, with its quotes; `None` without an end.
fn string_bytes(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// The text that a string stands for.
pub(super) fn unescaped(written: &[u8]) -> Text {
    let written = String::from_utf8_lossy(written);
    let mut repaired = matches!(written, Cow::Owned(_));
    let mut text = String::with_capacity(written.len());
    let mut rest = &*written;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let (character, length) = escape(after);
        repaired |= character.is_none();
        text.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
        rest = after.get(length..).unwrap_or_default();
    }
    text.push_str(rest);
    Text { text, repaired }
}

/// The character of an escape behind its backslash, and the length of the escape. `None` for half of a character, and
/// for what is no escape.
fn escape(after: &str) -> (Option<char>, usize) {
    let plain = |character| (Some(character), 1);
    match after.chars().next() {
        Some(character @ ('"' | '\\' | '/')) => plain(character),
        Some('n') => plain('\n'),
        Some('t') => plain('\t'),
        Some('r') => plain('\r'),
        Some('b') => plain('\u{8}'),
        Some('f') => plain('\u{c}'),
        Some('u') => {
            let unit = |from: usize| {
                let digits = after.get(from..from + 4)?;
                let all = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                if all { u16::from_str_radix(digits, 16).ok() } else { None }
            };
            match (unit(1), after.get(5..7)) {
                (None, _) => (None, 1),
                (Some(high @ 0xd800..=0xdbff), Some("\\u")) => match unit(7) {
                    Some(low @ 0xdc00..=0xdfff) => {
                        let code = 0x10000 + (u32::from(high - 0xd800) << 10) + u32::from(low - 0xdc00);
                        (char::from_u32(code), 11)
                    }
                    _ => (None, 5),
                },
                (Some(unit), _) => (char::from_u32(unit.into()), 5),
            }
        }
        Some(other) => (None, other.len_utf8()),
        None => (None, 0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn text(bytes: &[u8]) -> Option<(String, bool)> {
        wanted(bytes, "text").unwrap().text.map(|text| (text.text, text.repaired))
    }

    #[test]
    fn other_fields_never_matter() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let others = [
            r#""score": NaN"#,
            r#""score": -Infinity"#,
            r#""size": 1e999"#,
            r#""title": "\ud800 half""#,
            "\"title\": \"\u{1}\t\"",
            r#""id": 1, "id": 2"#,
            r#""meta": {"text": "not this", "list": [1, {"text": "nor this"}]}"#,
            r#""quoted": "\"text\": \"not this\" }""#,
            &format!("\"deep\": {deep}"),
        ];
        for other in others {
            for line in [format!("{{{other}, \"text\": \"this\"}}"), format!("{{\"text\": \"this\", {other}}}\r\n")] {
                assert_eq!(text(line.as_bytes()), Some(("this".to_owned(), false)), "{other:.80}");
            }
        }
        let bad = [&b"{\"title\": \"\xff\xfe\", \"text\": \"this\"}"[..]].concat();
        assert_eq!(text(&bad), Some(("this".to_owned(), false)));
    }

    #[test]
    fn a_text_is_repaired() {
        assert_eq!(text(br#"{"text": "a\ud83e\udd80b"}"#), Some(("a🦀b".to_owned(), false)));
        assert_eq!(text(br#"{"text": "a\ud83eb"}"#), Some(("a\u{fffd}b".to_owned(), true)));
        assert_eq!(text(br#"{"text": "a\ud83e\ud83e\udd80"}"#), Some(("a\u{fffd}🦀".to_owned(), true)));
        assert_eq!(text(br#"{"text": "a\udd80"}"#), Some(("a\u{fffd}".to_owned(), true)));
        assert_eq!(text(b"{\"text\": \"a\xffb\"}"), Some(("a\u{fffd}b".to_owned(), true)));
        assert_eq!(text(b"{\"te\\u0078t\": \"a\\n\"}"), Some(("a\n".to_owned(), false)));
    }

    #[test]
    fn what_is_no_object_with_such_a_string_is_told_apart() {
        assert_eq!(text(b"{}"), None);
        assert_eq!(text(b"{ \"text\": 3, \"a\": \"b\" } "), None);
        let of = |bytes: &str| wanted(bytes.as_bytes(), "text").unwrap_err();
        for half in ["{", "{\"text", "{\"text\": \"a", "{\"text\": [1", "{\"text\": \"a\"", "", "{\"text\": 1"] {
            assert_eq!(of(half), Malformed::Incomplete, "{half}");
        }
        for other in ["[]", "text", "{\"a\" 1}", "{\"a\": 1}x", "{\"a\":}", "{1: 2}", "{\"a\": \"b\" \"c\": 1}"] {
            assert_eq!(of(other), Malformed::NoObject, "{other}");
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            let list = prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from);
            let object = prop::collection::hash_map(any::<String>(), inner, 0..5);
            prop_oneof![list, object.prop_map(|members| members.into_iter().collect::<Map<_, _>>().into())]
        })
    }

    proptest! {
        #[test]
        fn a_valid_object_is_read_as_serde_json_reads_it(
            value in any_value(), string in any::<String>(), pretty in any::<bool>(),
        ) {
            let object = json!({ "a": value, "text": string, "z": value });
            let written = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) };
            prop_assert_eq!(text(written.unwrap().as_bytes()), Some((string, false)));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = wanted(&[b"{\"text\": ", &bytes[..]].concat(), "text");
            let _ = unescaped(&bytes);
        }
    }
}
