//! The filter `tojson` as `transformers` gives it to templates: what Python's `json.dumps(…, ensure_ascii=False)` writes.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use super::BYTES_PER_STEP;

/// The deepest value that is written.
const MAX_DEPTH: usize = 128;

/// The longest indentation of a level, in bytes: the template comes from a stranger.
const MAX_INDENT: usize = 64;

/// Writes a value as JSON, with the arguments of `transformers`.
pub(super) fn to_json(state: &mut State<'_, '_>, value: &Value, arguments: Kwargs) -> Result<String, Error> {
    let indent = match arguments.get::<Option<Value>>("indent")?.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => {
                let spaces = indent.as_usize().ok_or_else(|| wrong("indent takes a number or a string"))?;
                " ".repeat(spaces.min(MAX_INDENT + 1))
            }
        }),
    };
    if indent.as_ref().is_some_and(|indent| indent.len() > MAX_INDENT) {
        return Err(wrong("indent is too large"));
    }
    let ascii = arguments.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sorted = arguments.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let separators = arguments.get::<Option<Vec<String>>>("separators")?;
    arguments.assert_all_used()?;
    let [item, key] = match separators {
        None => [if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()],
        Some(given) => given.try_into().map_err(|_| wrong("separators takes two strings"))?,
    };
    if item.len().max(key.len()) > MAX_INDENT {
        return Err(wrong("a separator is too long"));
    }
    let mut written = Written { text: String::new(), charged: 0, state, indent, item, key, ascii, sorted };
    written.value(value, 0)?;
    Ok(written.text)
}

fn wrong(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {what}"))
}

struct Written<'a, 'b, 'c> {
    text: String,
    charged: usize,
    state: &'a State<'b, 'c>,
    indent: Option<String>,
    item: String,
    key: String,
    ascii: bool,
    sorted: bool,
}

impl Written<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(wrong("the value is nested too deeply"));
        }
        let steps = 1 + (self.text.len() - self.charged) as u64 / BYTES_PER_STEP;
        self.charged = self.text.len();
        self.state.consume_fuel(steps)?;
        match value.kind() {
            ValueKind::None => self.text += "null",
            ValueKind::Bool => self.text += if value.is_true() { "true" } else { "false" },
            ValueKind::Number if value.is_integer() => self.text += &value.to_string(),
            ValueKind::Number => self.text += &float(f64::try_from(value.clone())?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.map(|item| (None, item)).collect();
                self.items(items, ['[', ']'], depth)?;
            }
            ValueKind::Map => {
                let mut items = Vec::new();
                for key in value.try_iter()? {
                    let member = value.get_item(&key)?;
                    items.push((Some(key.to_string()), member));
                }
                if self.sorted {
                    items.sort_by(|(one, _), (other, _)| one.cmp(other));
                }
                self.items(items, ['{', '}'], depth)?;
            }
            _ => return Err(wrong("this value is none of JSON's")),
        }
        Ok(())
    }

    fn items(&mut self, items: Vec<(Option<String>, Value)>, brackets: [char; 2], depth: usize) -> Result<(), Error> {
        self.text.push(brackets[0]);
        let any = !items.is_empty();
        for (place, (key, value)) in items.into_iter().enumerate() {
            if place > 0 {
                self.text += &self.item;
            }
            self.line(depth + 1);
            if let Some(key) = key {
                self.string(&key);
                self.text += &self.key;
            }
            self.value(&value, depth + 1)?;
        }
        if any {
            self.line(depth);
        }
        self.text.push(brackets[1]);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.text.push('\n');
            (0..depth).for_each(|_| self.text += indent);
        }
    }

    fn string(&mut self, text: &str) {
        self.text.push('"');
        for character in text.chars() {
            match character {
                '"' => self.text += "\\\"",
                '\\' => self.text += "\\\\",
                '\n' => self.text += "\\n",
                '\r' => self.text += "\\r",
                '\t' => self.text += "\\t",
                '\u{8}' => self.text += "\\b",
                '\u{c}' => self.text += "\\f",
                '\0'..='\u{1f}' => self.text += &format!("\\u{:04x}", u32::from(character)),
                // Python escapes DEL in neither form, and others by their halves in UTF-16.
                '\u{80}'.. if self.ascii => {
                    let mut halves = [0; 2];
                    for half in character.encode_utf16(&mut halves) {
                        self.text += &format!("\\u{half:04x}");
                    }
                }
                _ => self.text.push(character),
            }
        }
        self.text.push('"');
    }
}

/// A float as Python writes it: the shortest digits that give it back, with an exponent below 1e-4 and from 1e16 on.
fn float(value: f64) -> String {
    if !value.is_finite() {
        let word = if value.is_nan() { "NaN" } else { "Infinity" };
        return format!("{}{word}", if value < 0.0 { "-" } else { "" });
    }
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let scientific = format!("{value:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        return format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    let plain = value.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, context};

    use super::*;

    fn written(json: &str, filter: &str) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.add_filter("tojson", to_json);
        environment.set_fuel(Some(10_000));
        let value: Value = serde_json::from_str(json).unwrap();
        environment.render_str(&format!("{{{{ value | {filter} }}}}"), context! { value })
    }

    /// What Python 3.12 writes for the same.
    #[test]
    fn json_is_written_as_python_writes_it() {
        let value =
            r#"{"b": [1, 2.0, 1e16, 1e-5, 0.0001, -1.5e300, null, true], "a": {"<&'>": "ä\"\\\n\u0001🦀"}, "e": []}"#;
        for (filter, expected) in [
            (
                "tojson",
                r#"{"b": [1, 2.0, 1e+16, 1e-05, 0.0001, -1.5e+300, null, true], "a": {"<&'>": "ä\"\\\n\u0001🦀"}, "e": []}"#,
            ),
            (
                "tojson(ensure_ascii=true, sort_keys=true, separators=[',', ':'])",
                r#"{"a":{"<&'>":"\u00e4\"\\\n\u0001\ud83e\udd80"},"b":[1,2.0,1e+16,1e-05,0.0001,-1.5e+300,null,true],"e":[]}"#,
            ),
        ] {
            assert_eq!(written(value, filter).unwrap(), expected);
        }
        let indented = written(r#"{"a": [1, {}], "b": []}"#, "tojson(indent=2)").unwrap();
        assert_eq!(indented, "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}");
        assert!(written("1", "tojson(colour=1)").is_err());
    }

    #[test]
    fn an_indentation_that_would_fill_the_memory_is_refused() {
        for hostile in ["indent=4611686018427387904", "indent=65", "indent='-' * 65"] {
            assert!(written("[1]", &format!("tojson({hostile})")).is_err(), "{hostile}");
        }
        assert!(written("[1]", "tojson(indent=-1)").is_err());
    }

    #[test]
    fn what_is_written_costs_fuel() {
        let long = serde_json::to_string(&vec!["a".repeat(1000); 1000]).unwrap();
        assert!(written(&long, "tojson").unwrap_err().to_string().contains("fuel"));
    }
}
