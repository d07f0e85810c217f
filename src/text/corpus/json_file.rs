//! Reading a corpus from JSON: an object a line, or objects over several lines, in an array or in a member that is one.

use std::io::{self, BufRead, Read};
use std::path::Path;
use std::rc::Rc;

use crate::config::TextConfig;
use crate::text::corpus::collector::Collector;
use crate::text::corpus::error::{CorpusError, MAX_OBJECT_BYTES, unreadable};
use crate::text::corpus::json_object::{Malformed, Members, Text, has_member, is_one_of, wanted};
use crate::text::corpus::left_out::{At, Reason};
use crate::text::corpus::lines::{Line, Lines};
use crate::text::corpus::records::{Records, Refused};
use crate::text::corpus::unpack::Packing;
use crate::text::document::Document;

/// How objects stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Lines,
    /// One after the other, or in arrays.
    Stream,
    /// In the array that begins behind so many bytes, in a member of an object.
    Member(usize),
}

/// The layout of a file that begins with `head`, without a byte-order mark. A document stands in members of these names.
pub(super) fn layout(head: &[u8], names: &[&str]) -> Layout {
    let blank = head.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let begun = &head[blank..];
    if begun.starts_with(b"[") {
        return Layout::Stream;
    }
    let line = begun.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    match has_member(line, names) {
        Ok(true) => Layout::Lines,
        Ok(false) => member(line, names).map_or(Layout::Lines, |at| Layout::Member(blank + at)),
        Err(Malformed::NoObject) => Layout::Lines,
        Err(Malformed::Incomplete) => {
            let mut following = begun[line.len()..].iter().skip_while(|byte| byte.is_ascii_whitespace());
            // The first line of many may be damaged.
            let lines = following.next().is_none_or(|first| *first == b'{');
            match member(begun, names) {
                Some(at) => Layout::Member(blank + at),
                None if lines => Layout::Lines,
                None => Layout::Stream,
            }
        }
    }
}

/// The place behind the bracket of the first array of objects in an object without the wanted fields. An array that is
/// closed before the bytes end within the object may be followed by such a field.
fn member(object: &[u8], names: &[&str]) -> Option<usize> {
    let (mut members, mut first) = (Members::new(object), None);
    loop {
        let next = members.next();
        let found = match &next {
            Ok(Some(found)) => found.clone(),
            Ok(None) => return first,
            Err(_) => members.unfinished.clone()?,
        };
        if is_one_of(&object[found.key], names) {
            return None;
        }
        let value = &object[found.value.clone()];
        let inside = value.strip_prefix(b"[").and_then(|rest| rest.iter().find(|byte| !byte.is_ascii_whitespace()));
        let place = (inside == Some(&b'{')).then_some(found.value.start + 1);
        if next.is_err() {
            return place.filter(|_| first.is_none());
        }
        first = first.or(place);
    }
}

/// Reads every object as a document of any length.
pub(super) fn read(
    (path, packing, layout): (&Path, Packing, Layout),
    kind: &str,
    text: &TextConfig,
    into: &mut Collector<'_>,
) -> Result<(), CorpusError> {
    let lines = Lines::open(path, packing, into.stop).map_err(|error| unreadable(path, error))?;
    let (column, before, records) = (&*text.column, into.progress.0, into.records.clone());
    let mut documents = Documents { path, kind, column, records, before };
    match layout {
        Layout::Lines => documents.of_lines(lines, into),
        Layout::Stream => documents.of_stream(lines, 0, None, into),
        Layout::Member(behind) => documents.of_stream(lines, behind, Some(1), into),
    }
}

/// A file whose objects are documents.
struct Documents<'a> {
    path: &'a Path,
    kind: &'a str,
    column: &'a str,
    records: Option<Rc<Records>>,
    /// Bytes of the files before.
    before: u64,
}

impl Documents<'_> {
    fn of_lines(&mut self, mut lines: Lines<'_>, into: &mut Collector<'_>) -> Result<(), CorpusError> {
        let mut line = Vec::new();
        loop {
            let next = lines.next(&mut line, MAX_OBJECT_BYTES).map_err(|error| unreadable(self.path, error))?;
            into.at(At::Line(lines.number()));
            into.progress.0 = self.before + lines.read_bytes();
            match next {
                Line::Whole if line.iter().all(u8::is_ascii_whitespace) => {}
                Line::Whole => self.object(&line, into)?,
                Line::TooLong => into.leave_out(Reason::TooLong),
                Line::End => return Ok(()),
            }
        }
    }

    /// From `behind` bytes on, in `depth` arrays; at the end of the outermost one, the file ends, if that is known.
    fn of_stream(
        &mut self,
        lines: Lines<'_>,
        behind: usize,
        depth: Option<usize>,
        into: &mut Collector<'_>,
    ) -> Result<(), CorpusError> {
        let failed = |error| unreadable(self.path, error);
        let read_bytes = lines.counter();
        let mut reader = lines.into_reader();
        let mut passed = Vec::new();
        (&mut reader).take(behind as u64).read_to_end(&mut passed).map_err(failed)?;
        let line = 1 + newlines(&passed);
        let mut objects = Objects { reader, line, depth: depth.unwrap_or(0), ends: depth.is_some() };
        let mut object = Vec::new();
        loop {
            let next = objects.next(&mut object).map_err(failed)?;
            into.go_on()?;
            into.progress.0 = self.before + read_bytes.get();
            match next {
                Next::Object { line } => {
                    into.at(At::Line(line));
                    self.object(&object, into)?;
                }
                Next::Other { line, reason } => {
                    into.at(At::Line(line));
                    into.leave_out(reason);
                }
                Next::End => return Ok(()),
                Next::Cut => {
                    let message = "the JSON is cut short: its last bracket is not closed; fetch the file again";
                    return Err(failed(io::Error::other(message)));
                }
            }
        }
    }

    fn object(&mut self, object: &[u8], into: &mut Collector<'_>) -> Result<(), CorpusError> {
        if let Some(records) = &self.records {
            match records.read(object) {
                Ok(read) => into.add_of(self.kind, read.domain.as_deref(), Document::Masked(&read.masked))?,
                Err(Refused { reason, detail: Some(detail) }) => into.leave_out_as(reason, detail),
                Err(Refused { reason, detail: None }) => into.leave_out(reason),
            }
            return Ok(());
        }
        let Ok(found) = wanted(object, self.column) else {
            into.leave_out(Reason::NotAnObject);
            return Ok(());
        };
        let Some(Text { text, repaired }) = found.text else {
            into.leave_out_as(Reason::NoField, format!("no string \"{}\"", self.column));
            return Ok(());
        };
        if repaired {
            into.leave_out(Reason::Repaired);
        }
        let domain = found.domain.map(|domain| domain.text);
        into.add_of(self.kind, domain.as_deref(), Document::Text(&text))
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Objects outside of others, by their quotes and brackets.
struct Objects<R> {
    reader: R,
    line: u64,
    /// Open arrays around the next object.
    depth: usize,
    /// Whether the end of the outermost array is the end.
    ends: bool,
}

enum Next {
    /// Begins at this line.
    Object {
        line: u64,
    },
    Other {
        line: u64,
        reason: Reason,
    },
    End,
    Cut,
}

impl<R: BufRead> Objects<R> {
    fn next(&mut self, object: &mut Vec<u8>) -> io::Result<Next> {
        object.clear();
        loop {
            let Some(first) = self.reader.fill_buf()?.first().copied() else {
                return Ok(if self.depth > 0 { Next::Cut } else { Next::End });
            };
            let line = self.line;
            match first {
                b'{' => return self.object(object),
                b'[' => self.depth += 1,
                b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 && self.ends {
                        return Ok(Next::End);
                    }
                }
                b'\n' => self.line += 1,
                byte if byte.is_ascii_whitespace() || byte == b',' => {}
                _ => {
                    self.pass_over_scalar(first == b'"')?;
                    return Ok(Next::Other { line, reason: Reason::NotAnObject });
                }
            }
            self.reader.consume(1);
        }
    }

    fn object(&mut self, object: &mut Vec<u8>) -> io::Result<Next> {
        let (line, mut state, mut too_long) = (self.line, Nesting::default(), false);
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok(Next::Cut);
            }
            let end = buffer.iter().position(|byte| state.ends_at(*byte));
            let taken = end.map_or(buffer.len(), |end| end + 1);
            too_long |= object.len() + taken > MAX_OBJECT_BYTES;
            self.line += newlines(&buffer[..taken]);
            if too_long {
                object.clear();
            } else {
                object.extend_from_slice(&buffer[..taken]);
            }
            self.reader.consume(taken);
            if end.is_some() {
                let reason = Reason::TooLong;
                return Ok(if too_long { Next::Other { line, reason } } else { Next::Object { line } });
            }
        }
    }

    /// A string, or a number or name.
    fn pass_over_scalar(&mut self, string: bool) -> io::Result<()> {
        let (mut state, mut first) = (Nesting::default(), true);
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok(());
            }
            let is_end = |byte: &u8| {
                state.ends_at(*byte);
                let begins = std::mem::take(&mut first);
                if string { !begins && !state.in_string } else { byte.is_ascii_whitespace() || b",]}[{".contains(byte) }
            };
            let end = buffer.iter().position(is_end);
            let taken = end.map_or(buffer.len(), |end| end + usize::from(string));
            self.line += newlines(&buffer[..taken]);
            self.reader.consume(taken);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

/// Where in nested brackets and strings the next byte stands.
#[derive(Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Nesting {
    /// Takes the next byte; whether it closes the outermost bracket.
    fn ends_at(&mut self, byte: u8) -> bool {
        if self.escaped {
            self.escaped = false;
            return false;
        }
        match byte {
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            b'{' | b'[' if !self.in_string => self.depth += 1,
            b'}' | b']' if !self.in_string => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_shows_in_the_first_bytes() {
        let of = |head: &str| layout(head.as_bytes(), &["text"]);
        assert_eq!(of("{\"text\": \"a\"}\n{\"text\": \"b\"}\n"), Layout::Lines);
        assert_eq!(of("{\"id\": 1}\n"), Layout::Lines);
        assert_eq!(of("{\"text\": \"cut\n{\"text\": \"b\"}\n"), Layout::Lines);
        assert_eq!(of(&format!("{{\"text\": \"{}", "long".repeat(999))), Layout::Lines);
        assert_eq!(of("\n[\n{\"text\": \"a\"},"), Layout::Stream);
        assert_eq!(of("{\n  \"text\": \"a\"\n}\n{\n  \"text\": \"b\"\n}\n"), Layout::Stream);
        assert_eq!(of("{\"version\": 1, \"data\": [{\"text\": \"a\"}]}"), Layout::Member(24));
        assert_eq!(of("{\n \"version\": [1], \"data\": [ {\"text\": \"a"), Layout::Member(28));
        assert_eq!(of("{\"text\": \"a\", \"links\": [{\"to\": 1}]}\n"), Layout::Lines);
        assert_eq!(of("plain text"), Layout::Lines);
    }
}
