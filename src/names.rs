//! Identifiers: who, what and which version. Small, ordered, and printed the same way everywhere.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A 32-byte value that is written as 64 hexadecimal digits, for people and in JSON; as 32 bytes on the wire.
macro_rules! bytes32 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 32]);

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.0.serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
                } else {
                    <[u8; 32]>::deserialize(deserializer).map(Self)
                }
            }
        }

        impl $name {
            /// The first eight hexadecimal digits, for people.
            pub fn short(&self) -> String {
                blake3::Hash::from_bytes(self.0).to_hex()[..8].to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.short())
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                let wrong = |_| NameError::NotHex(text.chars().take(80).collect());
                Ok(Self(blake3::Hash::from_hex(text).map_err(wrong)?.into()))
            }
        }
    };
}

bytes32! {
    /// BLAKE3 of a run's manifest.
    RunId
}
bytes32! {
    /// BLAKE3 of a blob's bytes: where it came from does not matter.
    BlobHash
}
bytes32! {
    /// A peer's ed25519 public key.
    PeerKey
}

/// For fewer bytes other cores are not worth waking.
const HASHED_BY_ONE_CORE_BYTES: usize = 1 << 20;

impl BlobHash {
    /// The hash of these bytes; by all cores, if they are many.
    pub fn of(bytes: &[u8]) -> Self {
        let hash = match bytes.len() < HASHED_BY_ONE_CORE_BYTES {
            true => blake3::hash(bytes),
            false => blake3::Hasher::new().update_rayon(bytes).finalize(),
        };
        Self(*hash.as_bytes())
    }
}

/// Why a text is not an identifier.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NameError {
    /// Not exactly 64 hexadecimal digits.
    #[error("expected 64 hexadecimal digits, found {0:?}")]
    NotHex(String),
    /// Not `level.expert`.
    #[error("expected a module as level.expert, such as 1.0, found {0:?}")]
    NotModule(String),
}

/// A blob and its size, which bounds what a receiver allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlobRef {
    /// BLAKE3 of the bytes.
    pub hash: BlobHash,
    /// How many bytes.
    pub bytes: u64,
}

impl BlobRef {
    /// Describes these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self { hash: BlobHash::of(bytes), bytes: bytes.len() as u64 }
    }
}

/// One version (expert) of a level: the unit that is shared, owned, versioned and shipped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModuleId {
    /// Which level of the grid.
    pub level: u16,
    /// Which expert of that level.
    pub expert: u32,
}

impl fmt::Display for ModuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.level, self.expert)
    }
}

impl fmt::Debug for ModuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ModuleId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let wrong = || NameError::NotModule(text.chars().take(40).collect());
        let (level, expert) = text.split_once('.').ok_or_else(wrong)?;
        Ok(Self { level: level.parse().map_err(|_| wrong())?, expert: expert.parse().map_err(|_| wrong())? })
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

counter! {
    /// A path through the grid: one module per level.
    PathId(u32)
}
counter! {
    /// How many updates a module has had.
    Version(u64)
}
counter! {
    /// Counts changes of ownership of a module.
    Term(u64)
}
counter! {
    /// Counts the outer steps of a path.
    Phase(u64)
}

impl Phase {
    /// The phase after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Version {
    /// The version after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_print_and_parse() {
        let hash = BlobHash::of(b"module");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        let module = ModuleId { level: 3, expert: 12 };
        assert_eq!(module.to_string(), "3.12");
        assert_eq!("3.12".parse(), Ok(module));
        let json = serde_json::to_string(&hash).unwrap();
        assert_eq!(json, format!("\"{hash}\""));
        assert_eq!(serde_json::from_str::<BlobHash>(&json).unwrap(), hash);
    }

    #[test]
    fn a_wrong_name_says_what_was_expected() {
        assert!("3".parse::<ModuleId>().is_err());
        assert!("é".repeat(32).parse::<BlobHash>().is_err());
        let error = "zz".parse::<RunId>().unwrap_err();
        assert_eq!(error.to_string(), "expected 64 hexadecimal digits, found \"zz\"");
    }
}
