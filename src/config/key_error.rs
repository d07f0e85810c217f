//! Keys of a configuration with values that they cannot have.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// A key with a value that it cannot have.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{key} = {found}: {expected}")]
pub struct KeyError {
    /// Dotted, such as `training.phases`.
    pub key: String,
    pub found: String,
    /// What the key may be instead.
    pub expected: String,
}

pub(super) fn require(holds: bool, key: &str, found: impl Display, expected: impl Display) -> Result<(), KeyError> {
    if holds {
        return Ok(());
    }
    Err(KeyError { key: key.to_owned(), found: found.to_string(), expected: expected.to_string() })
}

/// Requires a number of a range.
pub(super) fn within<T: PartialOrd + Display>(key: &str, found: T, range: RangeInclusive<T>) -> Result<(), KeyError> {
    require(range.contains(&found), key, found, format!("{} to {}", range.start(), range.end()))
}

/// Requires a number from 0 up to, but not including, `end`.
pub(super) fn from_zero_to_below(key: &str, found: impl Into<f64>, end: f64) -> Result<(), KeyError> {
    let found = found.into();
    require((0.0..end).contains(&found), key, found, format!("from 0 to below {end}"))
}
