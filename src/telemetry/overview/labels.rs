//! Names of peers for people.

use std::collections::BTreeMap;

/// The abbreviation of a key.
pub(super) fn short(key: &str) -> String {
    format!("…{}", key.get(..8).unwrap_or(key))
}

/// The labels of the peers that are asked, by key.
#[derive(Debug, Default)]
pub(super) struct Labels<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Labels<'a> {
    pub(super) fn new(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        Self(labels.collect())
    }

    /// The label of a key, or else its abbreviation.
    pub(super) fn name(&self, key: &str) -> String {
        self.0.get(key).map_or_else(|| short(key), |label| (*label).to_owned())
    }
}

/// Sorts `peer 2` before `peer 10`.
pub(super) fn natural(label: &str) -> (&str, u64, &str) {
    let stem = label.trim_end_matches(|last: char| last.is_ascii_digit());
    (stem, label[stem.len()..].parse().unwrap_or(0), label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_labels_are_sorted_as_numbers() {
        let mut labels = ["peer-10", "peer-2", "home", "peer-1"];
        labels.sort_by_key(|label| natural(label));
        assert_eq!(labels, ["home", "peer-1", "peer-2", "peer-10"]);
    }

    #[test]
    fn a_key_without_a_label_is_abbreviated() {
        let labels = Labels::new([("aaaa", "home")].into_iter());
        assert_eq!((labels.name("aaaa"), labels.name("0123456789ab")), ("home".to_owned(), "…01234567".to_owned()));
        assert_eq!(short("é"), "…é");
    }
}
