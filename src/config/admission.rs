//! `admission`: who may take part in a run.

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
