//! `admission`: who may take part in a run.

use serde::{Deserialize, Serialize};

/// Who may take part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Admission {
    /// Whoever knows an address.
    #[default]
    Open,
    /// Whom the creator, or somebody in its name, has invited.
    Invite,
}

impl Admission {
    /// What every run was before there were invitations.
    pub fn is_open(&self) -> bool {
        *self == Self::Open
    }
}
