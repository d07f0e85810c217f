//! Claims of module owners: signed once for each term, and verified once before they are believed.

use std::collections::BTreeMap;

use crate::names::{ModuleId, PeerKey, RunId, Term};
use crate::network::{Identity, verify};
use crate::protocol::wire::message::{Heartbeat, claim_bytes};

type Claim = (Term, PeerKey, Vec<u8>);

/// The last valid claim of each module, this peer's own claims included.
pub(in crate::peer) struct Claims {
    run: RunId,
    known: BTreeMap<ModuleId, Claim>,
}

impl Claims {
    pub(in crate::peer) fn new(run: RunId) -> Self {
        Self { run, known: BTreeMap::new() }
    }

    /// Signs the claim of a heartbeat, if it names its sender as the owner.
    pub(in crate::peer) fn sign(&mut self, identity: &Identity, module: ModuleId, heartbeat: &mut Heartbeat) {
        let Some((term, owner)) = heartbeat.owner.filter(|(_, owner)| *owner == identity.key()) else { return };
        let known = self.known.get(&module).filter(|(of, by, _)| (*of, *by) == (term, owner));
        let claim = match known {
            Some((.., claim)) => claim.clone(),
            None => {
                let claim = identity.sign(&claim_bytes(self.run, module, term, owner)).to_vec();
                self.known.insert(module, (term, owner, claim.clone()));
                claim
            }
        };
        heartbeat.claim = claim;
    }

    /// Removes the claim of a heartbeat unless the owner that the heartbeat names has signed it.
    pub(in crate::peer) fn check(&mut self, module: ModuleId, heartbeat: &mut Heartbeat) {
        let Some((term, owner)) = heartbeat.owner.filter(|_| !heartbeat.claim.is_empty()) else {
            return heartbeat.claim.clear();
        };
        let is_it = |(of, by, claim): &Claim| (*of, *by, claim) == (term, owner, &heartbeat.claim);
        if self.known.get(&module).is_some_and(is_it) {
            return;
        }
        if verify(owner, &claim_bytes(self.run, module, term, owner), &heartbeat.claim) {
            self.known.insert(module, (term, owner, heartbeat.claim.clone()));
        } else {
            heartbeat.claim.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::message::Start;

    const MODULE: ModuleId = ModuleId { level: 0, expert: 1 };

    fn heartbeat(term: u64, owner: PeerKey) -> Heartbeat {
        Heartbeat {
            start: Start::default(),
            sequence: 1,
            head: None,
            owner: Some((Term(term), owner)),
            claim: Vec::new(),
            leases: Vec::new(),
            addresses: Vec::new(),
            replicas: 0,
            wanted: Vec::new(),
            copied: Vec::new(),
            leaving: false,
            pace: 0,
        }
    }

    #[test]
    fn only_the_owners_signature_over_this_run_module_and_term_is_believed() {
        let (owner, other) = (Identity::generate(), Identity::generate());
        let (mut at_owner, mut here) = (Claims::new(RunId([1; 32])), Claims::new(RunId([1; 32])));
        let mut signed = heartbeat(3, owner.key());
        at_owner.sign(&owner, MODULE, &mut signed);
        let mut holds = |module: ModuleId, mut heartbeat: Heartbeat| {
            here.check(module, &mut heartbeat);
            !heartbeat.claim.is_empty()
        };
        assert!(holds(MODULE, signed.clone()) && holds(MODULE, signed.clone()));
        assert!(!holds(MODULE, Heartbeat { owner: Some((Term(4), owner.key())), ..signed.clone() }));
        assert!(!holds(MODULE, Heartbeat { owner: Some((Term(3), other.key())), ..signed.clone() }));
        assert!(!holds(ModuleId { level: 1, expert: 1 }, signed.clone()));
        let mut elsewhere = Claims::new(RunId([2; 32]));
        elsewhere.check(MODULE, &mut signed);
        assert!(signed.claim.is_empty(), "another run's");
        let mut of_another = heartbeat(3, other.key());
        at_owner.sign(&owner, MODULE, &mut of_another);
        assert!(of_another.claim.is_empty(), "nobody signs for others");
    }
}
