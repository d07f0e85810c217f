//! Positions of keys in a TOML text, for the line numbers in messages and in `config show`.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One key of a text.
#[derive(Debug)]
pub(in crate::config) struct Place {
    /// Dotted, such as `training.phases` or `levels[1].parts`.
    pub(in crate::config) key: String,
    /// From the key's first byte to its value's last.
    covers: Range<usize>,
    /// The bytes of the value, unless it is a table.
    pub(in crate::config) value: Option<Range<usize>>,
}

/// The keys of a text, in the order of the text.
#[derive(Debug)]
pub(in crate::config) struct Places {
    places: Vec<Place>,
    line_starts: Vec<usize>,
}

impl Places {
    /// Reads the positions; empty if the text is not TOML.
    pub(in crate::config) fn of(text: &str) -> Self {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut places = Vec::new();
        if let Ok(table) = DeTable::parse(text) {
            visit_table(table.get_ref(), "", &mut places);
        }
        places.sort_by_key(|place| place.covers.start);
        Self { places, line_starts }
    }

    pub(in crate::config) fn leaves(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        self.places.iter().filter_map(|place| Some((place.key.as_str(), place.value.clone()?)))
    }

    pub(in crate::config) fn line_at(&self, byte: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= byte)
    }

    pub(in crate::config) fn line_of(&self, key: &str) -> Option<usize> {
        self.places.iter().find(|place| place.key == key).map(|place| self.line_at(place.covers.start))
    }

    /// The innermost key that contains a byte.
    pub(in crate::config) fn key_at(&self, byte: usize) -> Option<&str> {
        let around = self.places.iter().filter(|place| place.covers.contains(&byte));
        around.min_by_key(|place| place.covers.len()).map(|place| place.key.as_str())
    }
}

fn visit_table(table: &DeTable<'_>, prefix: &str, places: &mut Vec<Place>) {
    for (name, value) in table {
        let dot = if prefix.is_empty() { "" } else { "." };
        let key = format!("{prefix}{dot}{}", name.get_ref());
        let (start, end) = (name.span().start.min(value.span().start), name.span().end.max(value.span().end));
        visit_value(value, key, start..end, places);
    }
}

fn visit_value(value: &Spanned<DeValue<'_>>, key: String, covers: Range<usize>, places: &mut Vec<Place>) {
    let mut leaf = false;
    match value.get_ref() {
        DeValue::Table(table) => visit_table(table, &key, places),
        DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => {
            for (index, item) in items.iter().enumerate() {
                visit_value(item, format!("{key}[{index}]"), item.span(), places);
            }
        }
        _ => leaf = true,
    }
    places.push(Place { key, covers, value: leaf.then(|| value.span()) });
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "name = 'a'\n[model]\nwidth = 8\n\n[[levels]]\nparts = [\n 'head']\nsharing = { experts = 2 }\n";

    #[test]
    fn every_key_has_its_line() {
        let places = Places::of(FILE);
        let line = |key| places.line_of(key);
        assert_eq!((line("name"), line("model"), line("model.width")), (Some(1), Some(2), Some(3)));
        assert_eq!((line("levels[0].parts"), line("levels[0].sharing.experts")), (Some(6), Some(8)));
        assert_eq!(line("heads"), None);
    }

    #[test]
    fn the_innermost_key_around_a_byte_is_found() {
        let places = Places::of(FILE);
        let key = |text| places.key_at(FILE.find(text).unwrap());
        assert_eq!(key("8"), Some("model.width"));
        assert_eq!(key("'head'"), Some("levels[0].parts"));
        assert_eq!(places.line_at(FILE.find("'head'").unwrap()), 7);
    }

    #[test]
    fn leaves_come_in_order_and_keep_their_text() {
        let places = Places::of(FILE);
        let leaves: Vec<_> = places.leaves().map(|(key, value)| (key, &FILE[value])).collect();
        assert_eq!(leaves[0], ("name", "'a'"));
        assert_eq!(leaves[3], ("levels[0].sharing.experts", "2"));
        assert_eq!(leaves.len(), 4);
    }
}
