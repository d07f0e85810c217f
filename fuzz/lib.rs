//! Fuzz targets for all that decodes bytes from others or from the disk, one a file in `targets/core/`, or in
//! `targets/all/` where it needs the feature `all`. Each holds one promise: whatever the bytes are, the decoder neither
//! panics, nor loops, nor takes more memory than the bytes are worth. What a target says besides, it asserts. README.md
//! says which decoder is in which target; `scripts/fuzz` runs them.
//!
//! What a decoder must be told besides the bytes, a target takes from the end of its input, so that seeds are easy to write.

use std::collections::BTreeMap;
use std::fmt::Debug;

use pathswarm::config::{OuterMode, Stagger};
use pathswarm::grid::{Grid, Sharing};
use pathswarm::names::{BlobHash, BlobRef};
use pathswarm::protocol::RunPlan;
use pathswarm::protocol::wire::encoding::{Framed, decode, encode};
use pathswarm::sampling::{Sample, WorkerSlots};

/// The value in these bytes, if there is one. Whatever decodes is said again in the very same bytes.
pub fn says_again<T: Framed + Debug>(bytes: &[u8]) -> Option<T> {
    let value = decode::<T>(bytes).ok()?;
    assert_eq!(encode(&value).as_deref().ok(), Some(bytes), "{value:?}");
    Some(value)
}

/// Every module's state before the first update.
pub const GENESIS: BlobRef = BlobRef { hash: BlobHash([3; 32]), bytes: 100 };

/// A kind of run of two levels of two modules each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Paths wait for each other.
    Synchronous,
    /// Nobody waits.
    Asynchronous,
    /// Levels are brought in step one after the other.
    Streaming,
    /// Two of the four paths are trained at a time, others every two phases.
    DrawnAnew,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Synchronous, Self::Asynchronous, Self::Streaming, Self::DrawnAnew];

    /// What a node must know of such a run.
    pub fn plan(self) -> RunPlan {
        let grid = Grid::new(vec![Sharing::Experts(2); 2]).expect("two levels of two make a grid");
        let sample = Sample { slots: 2, hold_phases: 2, seed: 7 };
        RunPlan {
            genesis: grid.modules().into_iter().map(|module| (module, GENESIS)).collect::<BTreeMap<_, _>>(),
            slots: match self {
                Self::DrawnAnew => WorkerSlots::sampled(grid, sample).expect("a slot for each module"),
                _ => grid.into(),
            },
            mode: if self == Self::Asynchronous { OuterMode::Asynchronous } else { OuterMode::Synchronous },
            phases: 40,
            inner_steps: 10,
            streaming: (self == Self::Streaming).then(|| Stagger::new(2, 10, 1)),
            reshard: Vec::new(),
            weights: vec![1 << 14; 4],
            offer_bytes: vec![1 << 20; 2],
            average_bytes: vec![1 << 20; 2],
            norm_cap: 4.0,
            audit_share: 1.0,
            centred_clipping: false,
            deterministic: false,
        }
    }
}

/// A run of two paths through three levels, with as small a network as there can be.
pub const TINY_RUN: &str = r#"
    name = "tiny"
    [model]
    blocks = 1
    width = 2
    heads = 1
    vocabulary = 258
    context = 8
    positions = "learned"
    [[levels]]
    parts = ["embedding"]
    sharing = { experts = 2 }
    [[levels]]
    parts = ["block.0"]
    sharing = "path"
    [[levels]]
    parts = ["final-norm", "head"]
    sharing = "shared"
    [routing]
    prefix_tokens = 2
    [training]
    batch_sequences = 2
    inner_steps = 5
    phases = 3
    ancestor_steps = 4
    learning_rate = 1e-3
"#;
