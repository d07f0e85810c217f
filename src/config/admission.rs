//! Who may take part in a run: with which right (`admission`), and with which version of the program (`requires`).

use semver::Version;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Admission {
    /// Any peer that knows an address.
    #[default]
    Open,
    /// Only peers with an invitation that leads back to the creator.
    Invite,
}

impl Admission {
    pub fn is_open(&self) -> bool {
        *self == Self::Open
    }
}

/// `[requires]`: a newer program, from a phase on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requires {
    /// The oldest version that may go on.
    pub version: Version,
    /// Phases that older ones train.
    #[serde(default)]
    pub from_phase: u64,
}

/// This program is older than its run requires.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("from phase {from_phase} on, this run needs pathswarm {needed} or newer, and this is {found}")]
pub struct TooOld {
    needed: Version,
    found: Version,
    /// Phases that it may train.
    pub from_phase: u64,
}

/// The version of this program.
pub fn program_version() -> Version {
    // Cargo takes no other.
    Version::parse(env!("CARGO_PKG_VERSION")).unwrap_or_else(|_| Version::new(0, 0, 0))
}

impl Requires {
    /// Whether a program of this version is older than what some phase needs.
    pub fn too_new_for(&self, program: &Version) -> Option<TooOld> {
        let Self { version, from_phase } = self;
        let found = program.clone();
        (program < version).then(|| TooOld { needed: version.clone(), found, from_phase: *from_phase })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_older_program_is_too_old() {
        let requires: Requires = toml::from_str("version = \"0.2.1\"\nfrom_phase = 6\n").unwrap();
        let too_old = |version: &str| requires.too_new_for(&Version::parse(version).unwrap());
        for fine in ["0.2.1", "0.2.2", "0.10.0", "1.0.0"] {
            assert_eq!(too_old(fine), None, "{fine}");
        }
        for old in ["0.2.0", "0.2.1-rc.1", "0.1.9"] {
            assert_eq!(too_old(old).unwrap().from_phase, 6, "{old}");
        }
        let said = too_old("0.1.9").unwrap().to_string();
        assert_eq!(said, "from phase 6 on, this run needs pathswarm 0.2.1 or newer, and this is 0.1.9");
        assert!(toml::from_str::<Requires>("version = \"two\"\n").is_err());
        let own = Requires { version: program_version(), from_phase: 0 };
        assert_eq!(own.too_new_for(&program_version()), None);
    }
}
