//! What a path, or a whole peer, waits for and why, as a value for programs.

use serde::{Deserialize, Serialize};

use crate::names::PeerKey;

/// What is waited for. Modules are named as `level.expert`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Waiting {
    /// A peer without a path has asked others who trains what.
    Directory {
        /// Who was asked, and has not answered yet.
        unanswered: Vec<PeerKey>,
        /// How many were asked.
        asked: usize,
    },
    /// A peer without a path has nobody left to ask: nobody answered. It begins again.
    Nobody {
        /// How many were asked.
        asked: usize,
    },
    /// These modules have no state here yet.
    Modules {
        /// Which.
        modules: Vec<String>,
        /// Living members of them that are known, summed over the modules.
        members: usize,
    },
    /// The text of a path is being fetched. (The driver's word: the core knows of no text.)
    Text {
        /// Which path.
        path: u32,
    },
    /// The disk does not take what is written; until it does, nothing is trained or combined. (The driver's word.)
    Disk {
        /// What it said.
        reason: String,
    },
    /// A peer that has come back listens who trains what.
    Return {
        /// Seconds left, rounded up.
        left_s: u64,
    },
    /// Another path of this peer trains.
    Turn,
    /// What the path's trainer had come to at the peer that it was taken from.
    Trainer {
        /// From whom.
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
    /// Others train a module's round, which this path lets pass, since its other modules are further.
    Skipping {
        /// The module.
        module: String,
    },
    /// A module has no owner.
    Unowned {
        /// The module.
        module: String,
    },
    /// A module's owner, another peer, is to combine.
    Owner {
        /// The module.
        module: String,
        /// Who.
        owner: PeerKey,
        /// Whether it is heard; if not, it is to be replaced.
        alive: bool,
    },
    /// This peer owns a module, and is about to collect or to close.
    Collecting {
        /// The module.
        module: String,
        /// Whether everything is in.
        complete: bool,
    },
    /// This peer owns a module, and paths have not contributed yet.
    Contributions {
        /// The module.
        module: String,
        /// Contributions in the sum.
        counted: usize,
        /// Paths expected.
        expected: usize,
        /// Paths that have not contributed.
        missing: Vec<u32>,
        /// Seconds until it closes without them, rounded up; nothing before there is a measure.
        left_s: Option<u64>,
    },
    /// This peer owns a module, and contributions are on their way.
    Arriving {
        /// The module.
        module: String,
    },
    /// This peer has become a module's owner, and listens before it closes anything.
    Settling {
        /// The module.
        module: String,
    },
    /// This peer owns a module of an asynchronous run, and lets some time pass between two updates.
    Pausing {
        /// The module.
        module: String,
        /// Contributions in the sum.
        counted: usize,
        /// Seconds until it closes, rounded up.
        left_s: u64,
    },
    /// This peer owns a module, and combines.
    Combining {
        /// The module.
        module: String,
        /// How many contributions.
        contributions: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_an_object_for_programs() {
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
