//! What of a source is not in the corpus, or not as it stood there: counted by reason, with the first places of each.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Places that are kept of each reason.
const FIRST: usize = 3;

/// Why something was left out, or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A file, or its rest, which could not be read.
    Unreadable,
    /// A link to a folder that is read at another place.
    ReadBefore,
    /// A file of bytes that are no UTF-8 text.
    NotText,
    /// A line or an element that is not a JSON object.
    NotAnObject,
    /// An object without such a string.
    NoField,
    /// An object that is no conversation or completion of which something can be learnt.
    BadRecord,
    /// A row without a value.
    NoValue,
    /// An object larger than may be in memory.
    TooLong,
    /// A document of only white space, or too short to learn from.
    Empty,
    /// A document that is there already.
    Duplicate,
    /// A document that was taken, with U+FFFD for bytes that are not UTF-8 and for halves of characters.
    Repaired,
}

impl Reason {
    /// A short name, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::ReadBefore => "read-before",
            Self::NotText => "not-text",
            Self::NotAnObject => "not-an-object",
            Self::NoField => "no-field",
            Self::BadRecord => "bad-record",
            Self::NoValue => "no-value",
            Self::TooLong => "too-long",
            Self::Empty => "empty",
            Self::Duplicate => "duplicate",
            Self::Repaired => "repaired",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::ReadBefore => "links to folders that are read already",
            Self::NotText => "not UTF-8",
            Self::NotAnObject => "not JSON objects",
            Self::NoField => "without the field for the text",
            Self::BadRecord => "records of which nothing can be learnt",
            Self::NoValue => "rows without a value",
            Self::TooLong => "above the limit for one document",
            Self::Empty => "empty or too short",
            Self::Duplicate => "duplicates",
            Self::Repaired => "with bytes that are not UTF-8, which became U+FFFD",
        }
    }
}

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: PathBuf,
    pub at: At,
    /// More about the reason, if there is more to say.
    pub detail: Option<String>,
}

/// A place in a file, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    File,
    Line(u64),
    Row(u64),
}

impl Place {
    /// A whole file.
    pub fn file(file: &Path) -> Self {
        Self { file: file.to_owned(), at: At::File, detail: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.at {
            At::File => {}
            At::Line(line) => write!(f, " line {line}")?,
            At::Row(row) => write!(f, " row {row}")?,
        }
        self.detail.as_ref().map_or(Ok(()), |detail| write!(f, " ({detail})"))
    }
}

/// How often one reason applied, and where first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub count: u64,
    pub first: Vec<Place>,
}

/// All that was left out or changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut(BTreeMap<Reason, Tally>);

impl LeftOut {
    /// Counts one more.
    pub fn add(&mut self, reason: Reason, place: &Place) {
        let tally = self.0.entry(reason).or_default();
        tally.count += 1;
        if tally.first.len() < FIRST {
            tally.first.push(place.clone());
        }
    }

    /// How often a reason applied.
    pub fn count(&self, reason: Reason) -> u64 {
        self.0.get(&reason).map_or(0, |tally| tally.count)
    }

    /// Every reason that applied.
    pub fn tallies(&self) -> impl Iterator<Item = (Reason, &Tally)> {
        self.0.iter().map(|(reason, tally)| (*reason, tally))
    }

    /// The counts in one line, such as `3 empty or too short, 1 duplicates`.
    pub fn counts(&self) -> String {
        let parts: Vec<String> =
            self.tallies().map(|(reason, tally)| format!("{} {}", tally.count, reason.words())).collect();
        parts.join(", ")
    }

    /// A line for each reason, with the first places.
    pub fn lines(&self) -> Vec<String> {
        let line = |(reason, tally): (Reason, &Tally)| {
            let verb = if reason == Reason::Repaired { "repaired" } else { "left out" };
            let places: Vec<String> = tally.first.iter().map(Place::to_string).collect();
            let more = if tally.count > places.len() as u64 { ", …" } else { "" };
            format!("{verb}: {} {}: {}{more}", tally.count, reason.words(), places.join(", "))
        };
        self.tallies().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_places_of_each_reason_are_said_and_all_are_counted() {
        let mut left = LeftOut::default();
        for line in 1..=5 {
            let place = Place { at: At::Line(line), ..Place::file(Path::new("a.jsonl")) };
            left.add(Reason::Empty, &place);
        }
        let because = Place { detail: Some("cut short".to_owned()), ..Place::file(Path::new("b.gz")) };
        left.add(Reason::Unreadable, &because);
        assert_eq!(
            left.lines(),
            [
                "left out: 1 unreadable: b.gz (cut short)",
                "left out: 5 empty or too short: a.jsonl line 1, a.jsonl line 2, a.jsonl line 3, …",
            ]
        );
        assert_eq!(left.counts(), "1 unreadable, 5 empty or too short");
    }
}
