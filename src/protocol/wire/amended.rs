//! How peers tell each other that their run was amended: by a lease that is none, which names the signed amendment as a
//! blob. Peers that do not know of such leases take it for that of a standby, as with the lease that tells a number of
//! trainers. So the messages are those of before.

use serde::{Deserialize, Serialize};

use crate::config::MAX_PHASES;
use crate::names::{BlobHash, BlobRef, PathId, Phase};
use crate::protocol::limits::MAX_AMENDMENT_BYTES;
use crate::protocol::wire::message::{Lease, Stage};

/// The path of a lease that is none. No run has so many paths.
const OF_AMENDMENT: PathId = PathId(u32::MAX - 1);

/// Bits of the amendment's number in the phase of its lease; those above are the phases of the run.
const NUMBER_BITS: u32 = 32;

/// An amendment of the run, without its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amended {
    /// Phases of the run from now on.
    pub phases: u64,
    /// Its number among those that the creator has signed.
    pub number: u32,
    /// The signed amendment.
    pub blob: BlobRef,
}

impl Amended {
    /// Of two amendments, the one of higher rank is in force, whichever came first: the one with more phases, then the
    /// later one, then the one with the larger hash. So phases never fall.
    pub fn rank(&self) -> (u64, u32, BlobHash) {
        (self.phases, self.number, self.blob.hash)
    }

    /// The lease that tells of it.
    pub fn lease(&self) -> Lease {
        let phase = Phase((self.phases.min(MAX_PHASES) << NUMBER_BITS) | u64::from(self.number));
        Lease { path: OF_AMENDMENT, phase, stage: Stage::Standby, trainer: Some(self.blob) }
    }

    /// The amendment that a peer with these leases tells of, if it can be one.
    pub fn of_leases(leases: &[Lease]) -> Option<Self> {
        let told = leases.iter().find(|lease| tells_of_amendment(lease))?;
        let blob = told.trainer.filter(|blob| (1..=MAX_AMENDMENT_BYTES).contains(&blob.bytes))?;
        let (phases, number) = (told.phase.0 >> NUMBER_BITS, told.phase.0 as u32);
        (1..=MAX_PHASES).contains(&phases).then_some(Self { phases, number, blob })
    }
}

/// Whether a lease is none, and tells of an amendment.
pub fn tells_of_amendment(lease: &Lease) -> bool {
    (lease.path, lease.stage) == (OF_AMENDMENT, Stage::Standby)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amended(phases: u64, number: u32, bytes: &[u8]) -> Amended {
        Amended { phases, number, blob: BlobRef::of(bytes) }
    }

    #[test]
    fn what_a_lease_tells_is_read_again() {
        for told in [amended(1, 1, b"a"), amended(MAX_PHASES, u32::MAX, b"b")] {
            let path = Lease { path: PathId(3), phase: Phase(9), stage: Stage::Done, trainer: None };
            assert_eq!(Amended::of_leases(&[path, told.lease()]), Some(told));
            assert!(tells_of_amendment(&told.lease()) && !tells_of_amendment(&path));
        }
        assert_eq!(Amended::of_leases(&[]), None);
    }

    #[test]
    fn a_lease_that_no_amendment_has_tells_nothing() {
        let fine = amended(7, 2, b"a").lease();
        let huge = BlobRef { bytes: MAX_AMENDMENT_BYTES + 1, ..BlobRef::of(b"a") };
        for wrong in [
            Lease { trainer: None, ..fine },
            Lease { trainer: Some(huge), ..fine },
            Lease { phase: Phase(u64::MAX), ..fine },
            Lease { phase: Phase(5), ..fine },
            Lease { stage: Stage::Training, ..fine },
        ] {
            assert_eq!(Amended::of_leases(&[wrong]), None, "{wrong:?}");
        }
    }

    #[test]
    fn more_phases_outrank_a_later_number_and_a_hash_decides_in_the_end() {
        let rank = |phases, number, bytes: &[u8]| amended(phases, number, bytes).rank();
        assert!(rank(9, 1, b"a") > rank(8, 2, b"a") && rank(8, 2, b"a") > rank(8, 1, b"a"));
        assert_ne!(rank(8, 1, b"a"), rank(8, 1, b"b"));
    }
}
