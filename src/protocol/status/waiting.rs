//! What a path, or a whole peer, waits for, as a value for programs.

use serde::{Deserialize, Serialize};

use crate::names::PeerKey;

/// The cause of the wait. Modules are named as `level.expert`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Waiting {
    /// A peer without a path has asked others for their directories.
    Directory {
        /// Peers that have not responded yet.
        unanswered: Vec<PeerKey>,
        /// Number of peers asked.
        asked: usize,
    },
    /// A peer without a path got no response and has no peer left to ask. It starts again.
    Nobody {
        /// Number of peers asked.
        asked: usize,
    },
    /// These modules have no state here yet.
    Modules {
        /// The modules.
        modules: Vec<String>,
        /// Known living members, summed over the modules.
        members: usize,
    },
    /// The text of a path is being fetched. (Set by the driver: the core has no text.)
    Text {
        /// The path.
        path: u32,
    },
    /// The disk does not accept writes. Nothing is trained or aggregated until it does. (Set by the driver.)
    Disk {
        /// The error.
        reason: String,
    },
    /// A peer that has returned listens for the current holders of paths.
    Return {
        /// Seconds left, rounded up.
        left_s: u64,
    },
    /// Another path of this peer is being trained.
    Turn,
    /// The state of the path's trainer is coming from the previous holder.
    Trainer {
        /// The previous holder.
        from: PeerKey,
    },
    /// Another peer takes the path.
    Taker,
    /// All phases of its path are done.
    Done,
    /// A module's next update is being fetched and applied.
    Applying {
        /// The module.
        module: String,
    },
    /// The path skips a round of a module, because its other modules are further. Other paths train that round.
    Skipping {
        /// The module.
        module: String,
    },
    /// A module has no owner.
    Unowned {
        /// The module.
        module: String,
    },
    /// A module's owner, another peer, has to make the update.
    Owner {
        /// The module.
        module: String,
        /// The owner.
        owner: PeerKey,
        /// Whether it is alive. If not, it will be replaced.
        alive: bool,
    },
    /// This peer owns a module, and is about to open or to close a collection.
    Collecting {
        /// Whether all contributions are in.
        module: String,
        /// Whether everything is in.
        complete: bool,
    },
    /// This peer owns a module, and contributions are missing.
    Contributions {
        /// The module.
        module: String,
        /// Contributions in the sum.
        counted: usize,
        /// Paths expected.
        expected: usize,
        /// Paths that have not contributed.
        missing: Vec<u32>,
        /// Seconds until the collection closes without them, rounded up; nothing before durations were measured.
        left_s: Option<u64>,
    },
    /// This peer owns a module, and contributions are being fetched or added.
    Arriving {
        /// The module.
        module: String,
    },
    /// This peer has become the owner of a module, and listens before it closes a collection.
    Settling {
        /// The module.
        module: String,
    },
    /// This peer owns a module of an asynchronous run, and spaces its updates.
    Pausing {
        /// The module.
        module: String,
        /// Contributions in the sum.
        counted: usize,
        /// Seconds until it closes, rounded up.
        left_s: u64,
    },
    /// This peer owns a module, and computes an average.
    Combining {
        /// The module.
        module: String,
        /// Number of contributions.
        contributions: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_wait_is_an_object_for_programs() {
        let waiting = Waiting::Contributions {
            module: "0.1".to_owned(),
            counted: 1,
            expected: 3,
            missing: vec![2, 5],
            left_s: Some(7),
        };
        let json = r#"{"kind":"contributions","module":"0.1","counted":1,"expected":3,"missing":[2,5],"left_s":7}"#;
        assert_eq!(serde_json::to_string(&waiting).unwrap(), json);
        assert_eq!(serde_json::from_str::<Waiting>(json).unwrap(), waiting);
        let owner = Waiting::Owner { module: "1.0".to_owned(), owner: PeerKey([0xab; 32]), alive: false };
        assert_eq!(serde_json::to_value(&owner).unwrap()["owner"], "ab".repeat(32));
        assert_eq!(serde_json::to_string(&Waiting::Turn).unwrap(), r#"{"kind":"turn"}"#);
    }
}
