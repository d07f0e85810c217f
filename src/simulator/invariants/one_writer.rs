//! Invariant: each version of a module has one writer on the surviving chain. Along a chain terms never fall, since
//! members reject replaced owners, and no owner signs two updates with the same parent in the same term, even after a
//! restart.

use std::collections::BTreeMap;

use crate::names::{ModuleId, PeerKey, Term};
use crate::protocol::wire::message::{SignedUpdate, UpdateHash};

/// Every update ever seen in a chain.
#[derive(Debug, Default)]
pub struct OneWriter {
    signed: BTreeMap<(ModuleId, UpdateHash, Term, PeerKey), UpdateHash>,
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
        let first = *self.signed.entry((module, update.parent, term, update.owner)).or_insert(hash);
        if honest && first != hash {
            return Err(format!("module {module} version {version}: two updates by {:?} in term {term}", update.owner));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{BlobHash, BlobRef, Version};
    use crate::protocol::wire::message::{GENESIS, Update};

    fn update(parent: UpdateHash, version: u64, term: u64) -> SignedUpdate {
        let blob = BlobRef::of(b"any");
        SignedUpdate {
            update: Update {
                module: ModuleId { level: 0, expert: 0 },
                term: Term(term),
                owner: PeerKey([0; 32]),
                version: Version(version),
                parent,
                contributions: vec![],
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
    }
}
