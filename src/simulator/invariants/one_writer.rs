//! Invariant: each version of a module has one writer in each term. Along a chain terms never fall, since members reject
//! replaced owners, and no owner signs two updates of one version in the same term, whether anybody applies them or not,
//! even after a restart.

use std::collections::BTreeMap;

use crate::names::{ModuleId, PeerKey, Term, Version};
use crate::protocol::wire::message::{SignedUpdate, Update, UpdateHash};

/// Every update ever published, or seen in a chain.
#[derive(Debug, Default)]
pub struct OneWriter {
    signed: BTreeMap<(ModuleId, Version, Term, PeerKey), UpdateHash>,
    terms: BTreeMap<(ModuleId, UpdateHash), Term>,
}

impl OneWriter {
    /// # Errors
    /// If a chain returns to an earlier term, or an honest owner has signed two updates of one version.
    pub fn look(&mut self, hash: UpdateHash, signed: &SignedUpdate, honest: bool) -> Result<(), String> {
        let update = &signed.update;
        let (module, version, term) = (update.module, update.version, update.term);
        if self.terms.contains_key(&(module, hash)) {
            return Ok(());
        }
        self.terms.insert((module, hash), term);
        if let Some(before) = self.terms.get(&(module, update.parent)).filter(|before| **before > term) {
            return Err(format!("module {module} version {version}: term {term} follows term {before}"));
        }
        if honest { self.signs(hash, signed) } else { Ok(()) }
    }

    /// An honest owner signs an update.
    ///
    /// # Errors
    /// If it has signed another of this version in this term.
    pub fn signs(&mut self, hash: UpdateHash, signed: &SignedUpdate) -> Result<(), String> {
        let Update { module, version, term, owner, .. } = signed.update;
        match *self.signed.entry((module, version, term, owner)).or_insert(hash) == hash {
            true => Ok(()),
            false => Err(format!("module {module} version {version}: two updates by {owner:?} in term {term}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{BlobHash, BlobRef};
    use crate::protocol::wire::message::GENESIS;

    fn update(parent: UpdateHash, version: u64, term: u64) -> SignedUpdate {
        let blob = BlobRef::of(b"any");
        SignedUpdate {
            update: Update {
                module: ModuleId { level: 0, expert: 0 },
                term: Term(term),
                owner: PeerKey([0; 32]),
                version: Version(version),
                parent,
                contributions: vec![].into(),
                norm: 0,
                average: blob,
                state: blob,
                weight: 0,
            },
            signature: vec![],
        }
    }

    #[test]
    fn a_second_update_and_an_earlier_term_are_found() {
        let hash = |number| BlobHash([number; 32]);
        let mut invariant = OneWriter::default();
        assert!(invariant.look(hash(1), &update(GENESIS, 1, 4), true).is_ok());
        assert!(invariant.look(hash(1), &update(GENESIS, 1, 4), true).is_ok());
        assert!(invariant.look(hash(2), &update(hash(1), 2, 3), true).is_err());
        assert!(invariant.look(hash(3), &update(GENESIS, 1, 4), true).is_err());
        assert!(invariant.look(hash(5), &update(GENESIS, 1, 4), false).is_ok());
        assert!(invariant.look(hash(4), &update(hash(1), 2, 5), true).is_ok());
        assert!(invariant.signs(hash(6), &update(hash(3), 2, 5)).is_err(), "nor after another parent");
    }
}
