//! Structs with their fields, and implementations, as far as a text shows them.

use crate::source::{block, identifier, is_in_identifier, line_of, occurrences};

pub struct Struct {
    pub name: String,
    pub fields: Vec<Field>,
}

#[derive(Debug, PartialEq)]
pub struct Field {
    pub line: usize,
    /// A number where fields have no names.
    pub name: String,
    /// `pub`, `pub(super)` and the like; nothing where it is private.
    pub visibility: String,
    /// The type.
    pub of: String,
}

/// All structs of this code that have fields.
pub fn structs(code: &str) -> Vec<Struct> {
    let structs = occurrences(code, "struct ").filter_map(|at| {
        let name = identifier(&code[at + "struct ".len()..]);
        let mut opens = at + "struct ".len() + name.len();
        if code[opens..].starts_with('<') {
            opens += "<>".len() + piece(&code[opens + 1..], '>');
        }
        opens += code[opens..].len() - code[opens..].trim_start().len();
        if identifier(&code[opens..]) == "where" {
            opens += code[opens..].find(['{', ';'])?;
        }
        let body = match code.as_bytes().get(opens)? {
            b'{' => opens + 1..block(code, opens)?.end - 1,
            b'(' => opens + 1..opens + 1 + piece(&code[opens + 1..], ')'),
            _ => return None,
        };
        Some(Struct { name: name.to_owned(), fields: fields(code, body) })
    });
    structs.collect()
}

fn fields(code: &str, body: std::ops::Range<usize>) -> Vec<Field> {
    let mut found = Vec::new();
    let mut at = body.start;
    while at < body.end {
        let end = at + piece(&code[at..body.end], ',');
        let rest = without_attributes(&code[at..end]);
        if !rest.is_empty() {
            let line = line_of(code, end - rest.len());
            found.push(field(rest, line, found.len()));
        }
        at = end + 1;
    }
    found
}

/// What is left of a field behind its attributes.
fn without_attributes(field: &str) -> &str {
    let mut rest = field.trim_start();
    while let Some(attribute) = rest.strip_prefix("#[") {
        rest = attribute[(piece(attribute, ']') + 1).min(attribute.len())..].trim_start();
    }
    rest
}

fn field(text: &str, line: usize, number: usize) -> Field {
    let mut rest = text.trim();
    let mut visibility = "";
    if identifier(rest) == "pub" {
        let length = match rest["pub".len()..].strip_prefix('(') {
            Some(inside) => "pub()".len() + piece(inside, ')'),
            None => "pub".len(),
        };
        (visibility, rest) = (&rest[..length], rest[length..].trim_start());
    }
    let name = identifier(rest);
    let named = rest[name.len()..].trim_start().strip_prefix(':').filter(|rest| !rest.starts_with(':'));
    let (name, of) = match named {
        Some(of) => (name.to_owned(), of.trim()),
        None => (number.to_string(), rest),
    };
    Field { line, name, visibility: visibility.to_owned(), of: of.to_owned() }
}

/// The length up to this character, outside of all brackets.
fn piece(text: &str, end: char) -> usize {
    let (mut depth, mut before) = (0usize, ' ');
    for (at, character) in text.char_indices() {
        match character {
            // `->` closes nothing.
            '>' if before == '-' => {}
            _ if character == end && depth == 0 => return at,
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = character;
    }
    text.len()
}

/// Each implementation in this code: its line and the name of its type, without the path and what is in `<…>`.
pub fn implementations(code: &str) -> Vec<(usize, String)> {
    let found = occurrences(code, "impl").filter_map(|at| {
        let rest = &code[at + "impl".len()..];
        let before = code[..at].trim_end();
        // Elsewhere it is the type of a parameter or of a result.
        let is_item = before.is_empty() || before.ends_with(['}', '{', ';', ']']) || before.ends_with("unsafe");
        if !is_item || rest.starts_with(is_in_identifier) {
            return None;
        }
        let head = &rest[..piece(rest, '{')];
        let head = head.strip_prefix('<').map_or(head, |generics| &generics[piece(generics, '>') + 1..]);
        let words: Vec<&str> = head.split_whitespace().collect();
        let of = words.iter().rposition(|word| *word == "for").map_or(0, |at| at + 1);
        let path = words.get(of)?.split('<').next()?;
        Some((line_of(code, at), path.rsplit("::").next()?.to_owned()))
    });
    found.collect()
}

mod made_up {
    use super::*;

    #[test]
    fn fields_are_read_with_all_that_stands_around_them() {
        let code = "
pub struct Named<T: Into<u8>, F> where F: Fn(u8) -> u8 {
    one: BTreeMap<(u8, u8), Vec<T>>,
    #[serde(default)]
    #[expect(dead_code)]
    pub two: crate::a::Two,
    pub(in crate::a::b) three: Option<Box<dyn Fn(u8) -> F>>, pub(super) four: [u8; 4]
}
struct Tuple(pub One, (u8, Two));
struct Unit;
struct Empty {}";
        let all = structs(code);
        let names: Vec<(&str, usize)> = all.iter().map(|one| (one.name.as_str(), one.fields.len())).collect();
        assert_eq!(names, [("Named", 4), ("Tuple", 2), ("Empty", 0)]);
        let field = |line, visibility: &str, name: &str, of: &str| Field {
            line,
            name: name.to_owned(),
            visibility: visibility.to_owned(),
            of: of.to_owned(),
        };
        assert_eq!(
            all[0].fields,
            [
                field(3, "", "one", "BTreeMap<(u8, u8), Vec<T>>"),
                field(6, "pub", "two", "crate::a::Two"),
                field(7, "pub(in crate::a::b)", "three", "Option<Box<dyn Fn(u8) -> F>>"),
                field(7, "pub(super)", "four", "[u8; 4]")
            ]
        );
        assert_eq!(all[1].fields, [field(9, "pub", "0", "One"), field(9, "", "1", "(u8, Two)")]);
    }

    #[test]
    fn implementations_are_told_from_types_that_begin_alike() {
        let code = "impl One { fn f(of: impl Two) -> impl Three {} }
unsafe impl<T: Into<u8>> Send for a::Four<T> where T: Send {}
mod m { impl crate::a::Five<{ 1 }> {} }
#[expect(dead_code)]
impl fmt::Debug for Six {}
fn implied() { implement(); }";
        let found = implementations(code);
        let found: Vec<(usize, &str)> = found.iter().map(|(line, name)| (*line, name.as_str())).collect();
        assert_eq!(found, [(1, "One"), (2, "Four"), (3, "Five"), (5, "Six")]);
    }
}
