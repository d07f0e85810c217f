//! An amendment of a running run, signed by its creator: more phases, and the version of the program that they need.

use serde::{Deserialize, Serialize};

use crate::access::admission::Verify;
use crate::config::MAX_PHASES;
use crate::config::admission::Requires;
use crate::names::{BlobRef, PeerKey, RunId};
use crate::protocol::limits::{MAX_AMENDMENT_BYTES, SIGNATURE_BYTES};
use crate::protocol::wire::amended::Amended;
use crate::protocol::wire::encoding::{self, WireError, framed};

/// What the creator changes. It holds in place of the manifest's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amendment {
    /// The run.
    pub run: RunId,
    /// From 1; each of a creator's amendments has a higher one.
    pub number: u32,
    /// All phases of the run, at least as many as before.
    pub phases: u64,
    /// The version that phases need from one on.
    pub requires: Option<Requires>,
}

/// An amendment with its creator's signature, as it is stored and sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedAmendment {
    pub amendment: Amendment,
    /// The creator's, over [`Amendment::signed_bytes`].
    #[serde(with = "serde_bytes")]
    pub signature: Vec<u8>,
}

framed! {
    SignedAmendment = 12, MAX_AMENDMENT_BYTES as usize;
}

/// Why bytes are no amendment of a run. For people.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmendmentError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("it is for run {}", .0.short())]
    OtherRun(RunId),
    #[error(
        "amendments have a number from 1 and 1 to {MAX_PHASES} phases, this one number {number} and {phases} phases"
    )]
    Range { number: u32, phases: u64 },
    #[error("{}, the run's creator, has not signed it", .0.short())]
    NotSigned(PeerKey),
}

impl Amendment {
    pub fn signed_bytes(&self) -> Vec<u8> {
        let Self { run, number, phases, requires } = self;
        let mut bytes =
            [b"pathswarm amendment".as_slice(), &run.0, &number.to_le_bytes(), &phases.to_le_bytes()].concat();
        if let Some(Requires { version, from_phase }) = requires {
            bytes.extend(from_phase.to_le_bytes());
            bytes.extend(version.to_string().into_bytes());
        }
        bytes
    }
}

impl SignedAmendment {
    /// The bytes that are stored and sent.
    ///
    /// # Errors
    /// If the version has a longer name than fits.
    pub fn bytes(&self) -> Result<Vec<u8>, WireError> {
        encoding::encode(self)
    }

    /// Reads bytes from anywhere as an amendment of this run, signed by its creator.
    ///
    /// # Errors
    /// If they are none.
    pub fn checked(bytes: &[u8], run: RunId, creator: PeerKey, verify: Verify) -> Result<Amendment, AmendmentError> {
        let Self { amendment, signature } = encoding::decode(bytes)?;
        if amendment.run != run {
            return Err(AmendmentError::OtherRun(amendment.run));
        }
        let (number, phases) = (amendment.number, amendment.phases);
        if number == 0 || !(1..=MAX_PHASES).contains(&phases) {
            return Err(AmendmentError::Range { number, phases });
        }
        if signature.len() != SIGNATURE_BYTES || !verify(creator, &amendment.signed_bytes(), &signature) {
            return Err(AmendmentError::NotSigned(creator));
        }
        Ok(amendment)
    }

    /// What peers tell each other of an amendment with these bytes.
    pub fn told(amendment: &Amendment, bytes: &[u8]) -> Amended {
        Amended { phases: amendment.phases, number: amendment.number, blob: BlobRef::of(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId([7; 32]);
    const CREATOR: PeerKey = PeerKey([1; 32]);
    const EVE: PeerKey = PeerKey([4; 32]);

    /// A simulated signature: a hash of the signer's key and the signed bytes.
    fn signature(by: PeerKey, bytes: &[u8]) -> Vec<u8> {
        let hash = blake3::hash(&[by.0.as_slice(), bytes].concat());
        [hash.as_bytes().as_slice(), &[0; 32]].concat()
    }

    fn verify(by: PeerKey, bytes: &[u8], signed: &[u8]) -> bool {
        signature(by, bytes) == signed
    }

    fn amendment() -> Amendment {
        let requires = Some(Requires { version: semver::Version::new(0, 2, 0), from_phase: 9 });
        Amendment { run: RUN, number: 3, phases: 12, requires }
    }

    fn signed(amendment: Amendment, by: PeerKey) -> Vec<u8> {
        let signature = signature(by, &amendment.signed_bytes());
        SignedAmendment { amendment, signature }.bytes().unwrap()
    }

    fn checked(bytes: &[u8]) -> Result<Amendment, AmendmentError> {
        SignedAmendment::checked(bytes, RUN, CREATOR, verify)
    }

    #[test]
    fn what_the_creator_has_signed_is_read_again() {
        let bytes = signed(amendment(), CREATOR);
        assert_eq!(checked(&bytes), Ok(amendment()));
        let told = SignedAmendment::told(&amendment(), &bytes);
        assert_eq!((told.phases, told.number, told.blob), (12, 3, BlobRef::of(&bytes)));
        assert_eq!(checked(&signed(Amendment { requires: None, ..amendment() }, CREATOR)).unwrap().requires, None);
    }

    #[test]
    fn what_another_has_signed_or_is_of_another_run_is_none() {
        assert_eq!(checked(&signed(amendment(), EVE)), Err(AmendmentError::NotSigned(CREATOR)));
        let other = RunId([8; 32]);
        let elsewhere = signed(Amendment { run: other, ..amendment() }, CREATOR);
        assert_eq!(checked(&elsewhere), Err(AmendmentError::OtherRun(other)));
    }

    #[test]
    fn whatever_is_changed_in_a_signed_one_it_is_none_any_more() {
        let requires = |version, from_phase| Some(Requires { version, from_phase });
        let signature = signature(CREATOR, &amendment().signed_bytes());
        for changed in [
            Amendment { number: 4, ..amendment() },
            Amendment { phases: 13, ..amendment() },
            Amendment { requires: None, ..amendment() },
            Amendment { requires: requires(semver::Version::new(0, 2, 0), 8), ..amendment() },
            Amendment { requires: requires(semver::Version::new(0, 1, 9), 9), ..amendment() },
        ] {
            let bytes = SignedAmendment { amendment: changed, signature: signature.clone() }.bytes().unwrap();
            assert_eq!(checked(&bytes), Err(AmendmentError::NotSigned(CREATOR)));
        }
    }

    #[test]
    fn impossible_numbers_and_long_or_broken_bytes_are_refused() {
        for (number, phases) in [(0, 12), (1, 0), (1, MAX_PHASES + 1), (u32::MAX, u64::MAX)] {
            let wrong = signed(Amendment { number, phases, ..amendment() }, CREATOR);
            assert_eq!(checked(&wrong), Err(AmendmentError::Range { number, phases }));
        }
        let bytes = signed(amendment(), CREATOR);
        assert!((0..bytes.len()).all(|length| checked(&bytes[..length]).is_err()));
        assert!(checked(&[bytes, vec![0]].concat()).is_err());
        assert!(checked(&[0; 10_000]).is_err());
        let version = format!("1.0.0-{}", "a".repeat(600)).parse().unwrap();
        let long = Amendment { requires: Some(Requires { version, from_phase: 0 }), ..amendment() };
        assert!(SignedAmendment { amendment: long, signature: vec![0; 64] }.bytes().is_err());
    }
}
