//! A manifest with an amendment of its creator. The bytes of the manifest, whose hash is the run, stay as they are.

use crate::access::amendment::{Amendment, AmendmentError, SignedAmendment};
use crate::config::admission::Requires;
use crate::config::run::RunConfigError;
use crate::names::{PeerKey, RunId};
use crate::network::{Identity, verify};
use crate::peer::manifest::Manifest;
use crate::protocol::wire::encoding::WireError;

/// Why a run is not amended. For people.
#[derive(Debug, thiserror::Error)]
pub enum AmendError {
    #[error("the manifest of this run names no creator: it was created by an older version of pathswarm")]
    NoCreator,
    #[error("only the peer that has created the run, {}, can amend it", .0.short())]
    NotCreator(PeerKey),
    #[error("this is the first of two stages, which the second follows as it is written in the manifest")]
    FirstStage,
    #[error("the run has {now} phases, and cannot have fewer: {phases}")]
    Fewer { now: u64, phases: u64 },
    #[error("an amendment of as many phases or more is in force, number {0}")]
    Outranked(u32),
    #[error("the run has {0} phases, and requires the same version already")]
    Same(u64),
    #[error("the creator has signed as many amendments as there can be")]
    Last,
    #[error(transparent)]
    Amendment(#[from] AmendmentError),
    #[error(transparent)]
    Config(#[from] RunConfigError),
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl Manifest {
    /// What an amendment can change, as it is now.
    pub fn in_force(&self) -> String {
        let requires = self.config.requires.as_ref().map_or_else(String::new, |requires| {
            format!(", and requires version {} from phase {} on", requires.version, requires.from_phase)
        });
        format!("the run has {} phases now{requires}", self.config.training.phases)
    }

    /// Whose amendments count.
    fn amender(&self) -> Result<PeerKey, AmendError> {
        if self.then.is_some() {
            return Err(AmendError::FirstStage);
        }
        self.creator.ok_or(AmendError::NoCreator)
    }

    /// Takes an amendment, which may come from anywhere, if the creator has signed it and it outranks the one in force.
    ///
    /// # Errors
    /// If not. The manifest is as it was, then.
    pub fn amend(&mut self, run: RunId, bytes: &[u8]) -> Result<(), AmendError> {
        let amendment = SignedAmendment::checked(bytes, run, self.amender()?, verify)?;
        let (told, now) = (SignedAmendment::told(&amendment, bytes), self.config.training.phases);
        if told.phases < now {
            return Err(AmendError::Fewer { now, phases: told.phases });
        }
        if let Some(here) = self.amendment.filter(|here| here.rank() >= told.rank()) {
            return Err(AmendError::Outranked(here.number));
        }
        let mut config = self.config.clone();
        config.training.phases = told.phases;
        config.requires = amendment.requires;
        config.check()?;
        (self.config, self.amendment) = (config, Some(told));
        Ok(())
    }

    /// Signs the next amendment. Without a requirement, the one in force stays.
    ///
    /// # Errors
    /// If this peer is not the creator, or there cannot be so many phases.
    pub fn next_amendment(
        &self,
        run: RunId,
        (phases, requires): (Option<u64>, Option<Requires>),
        identity: &Identity,
    ) -> Result<Vec<u8>, AmendError> {
        let creator = self.amender()?;
        if identity.key() != creator {
            return Err(AmendError::NotCreator(creator));
        }
        let now = self.config.training.phases;
        let phases = phases.unwrap_or(now);
        let requires = requires.or_else(|| self.config.requires.clone());
        if (phases, &requires) == (now, &self.config.requires) {
            return Err(AmendError::Same(now));
        }
        let number = self.amendment.map_or(0, |here| here.number).checked_add(1).ok_or(AmendError::Last)?;
        let amendment = Amendment { run, number, phases, requires };
        let signature = identity.sign(&amendment.signed_bytes()).to_vec();
        let bytes = SignedAmendment { amendment, signature }.bytes()?;
        self.clone().amend(run, &bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MAX_PHASES;
    use crate::peer::tests::tiny_run::Tiny;

    /// The manifest of a run that this peer has created.
    fn created() -> (Manifest, Identity, RunId) {
        let (tiny, identity) = (Tiny::create(true), Identity::generate());
        let manifest = Manifest { creator: Some(identity.key()), ..tiny.decoded.clone() };
        (manifest, identity, tiny.run)
    }

    fn more(phases: u64) -> (Option<u64>, Option<Requires>) {
        (Some(phases), None)
    }

    #[test]
    fn amendments_in_any_order_lead_to_the_same_run() {
        let (manifest, identity, run) = created();
        let first = manifest.next_amendment(run, more(5), &identity).unwrap();
        let mut amended = manifest.clone();
        amended.amend(run, &first).unwrap();
        let requires = Requires { version: semver::Version::new(9, 0, 0), from_phase: 4 };
        let second = amended.next_amendment(run, (None, Some(requires.clone())), &identity).unwrap();
        amended.amend(run, &second).unwrap();
        let (told, config) = (amended.amendment.unwrap(), &amended.config);
        assert_eq!((told.number, told.phases, config.training.phases), (2, 5, 5));
        assert_eq!(config.requires, Some(requires.clone()));
        assert!(config.is_too_new().is_some_and(|too_old| too_old.from_phase == 4));
        assert!(matches!(amended.amend(run, &first), Err(AmendError::Outranked(2))));
        let mut late = manifest.clone();
        late.amend(run, &second).unwrap();
        assert_eq!(late, amended);
        assert_eq!(late.plan().unwrap().phases, 5);
        let third = late.next_amendment(run, more(6), &identity).unwrap();
        late.amend(run, &third).unwrap();
        assert_eq!(late.config.requires, Some(requires), "it stays");
    }

    #[test]
    fn only_the_creator_amends_and_never_to_fewer_phases() {
        let (manifest, identity, run) = created();
        let now = manifest.config.training.phases;
        let refused = |phases| manifest.next_amendment(run, more(phases), &identity).unwrap_err();
        assert!(matches!(refused(now - 1), AmendError::Fewer { .. }));
        assert!(matches!(refused(now), AmendError::Same(_)));
        assert!(matches!(refused(MAX_PHASES + 1), AmendError::Amendment(AmendmentError::Range { .. })));
        let eve = Identity::generate();
        assert!(matches!(manifest.next_amendment(run, more(9), &eve), Err(AmendError::NotCreator(_))));
        let forged = Manifest { creator: Some(eve.key()), ..manifest.clone() }.next_amendment(run, more(9), &eve);
        let taken = manifest.clone().amend(run, &forged.unwrap());
        assert!(matches!(taken, Err(AmendError::Amendment(AmendmentError::NotSigned(_)))));
        let older = Manifest { creator: None, ..manifest.clone() };
        assert!(matches!(older.next_amendment(run, more(9), &identity), Err(AmendError::NoCreator)));
        let first_stage = Manifest { then: Some(Box::new(manifest.config.clone())), ..manifest };
        assert!(matches!(first_stage.next_amendment(run, more(9), &identity), Err(AmendError::FirstStage)));
    }

    #[test]
    fn an_amendment_of_another_run_changes_nothing() {
        let (mut manifest, identity, run) = created();
        let before = manifest.clone();
        let bytes = manifest.next_amendment(RunId([9; 32]), more(9), &identity).unwrap();
        assert!(matches!(manifest.amend(run, &bytes), Err(AmendError::Amendment(AmendmentError::OtherRun(_)))));
        assert_eq!(manifest, before);
    }
}
