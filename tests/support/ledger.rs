//! What journals say of contributions: which were trained, which updates counted them, and what became of these.
//!
//! A journal is synced before it is acted upon, so a peer cannot have told anybody of an update that is not in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pathswarm::names::{BlobHash, ModuleId, PathId, Version};
use pathswarm::protocol::wire::encoding;
use pathswarm::protocol::{Record, SignedUpdate};
use pathswarm::store::Journal;

type Contribution = (ModuleId, PathId, Version, BlobHash);

/// What one or several journals hold.
#[derive(Default)]
pub struct Ledger {
    /// Updates applied, or taken over with a chain, by their hash.
    updates: BTreeMap<BlobHash, SignedUpdate>,
    /// Contributions that a phase ended with.
    trained: BTreeSet<Contribution>,
}

impl Ledger {
    /// Takes in the journal in a peer's folder, if there is one. What its disk no longer has, nobody can offer: with
    /// `lost`, only what was applied there counts.
    pub fn read(&mut self, folder: &Path, lost: bool) {
        let journal = folder.join("store/journal");
        if !journal.exists() {
            return;
        }
        for record in Journal::read(&journal).unwrap() {
            match encoding::decode::<Record>(&record).unwrap() {
                Record::Head(signed) => self.applied(signed),
                Record::Installed { updates, .. } => updates.into_iter().for_each(|signed| self.applied(signed)),
                Record::Finished(finished) if !lost => {
                    let of = |(from, blob): &(
                        pathswarm::protocol::wire::inner_checkpoint::BaseVersion,
                        pathswarm::names::BlobRef,
                    )| { (from.module, finished.path, from.version, blob.hash) };
                    self.trained.extend(finished.offers.iter().map(of));
                }
                _ => {}
            }
        }
    }

    fn applied(&mut self, signed: SignedUpdate) {
        self.updates.insert(encoding::update_hash(&signed.update).unwrap(), signed);
    }

    pub fn modules(&self) -> BTreeSet<ModuleId> {
        self.updates.values().map(|signed| signed.update.module).collect()
    }

    /// The chain of a module that ends with this state, newest first, down to genesis.
    pub fn chain(&self, module: ModuleId, state: &str) -> Vec<&SignedUpdate> {
        let ends =
            |signed: &&SignedUpdate| signed.update.module == module && signed.update.state.hash.to_string() == state;
        let mut next = self.updates.values().find(ends);
        let mut chain = Vec::new();
        while let Some(signed) = next {
            chain.push(signed);
            next = self.updates.get(&signed.update.parent);
        }
        let first = chain.last().unwrap_or_else(|| panic!("module {module}: no journal has its last update"));
        assert_eq!(first.update.version, Version(1), "module {module}: the chain has a gap");
        chain
    }

    /// Contributions that some update of the module counts, on whatever chain, and those that were trained for it.
    pub fn contributions(&self, module: ModuleId) -> BTreeSet<Contribution> {
        let of_module = self.updates.values().filter(|signed| signed.update.module == module);
        let counted = of_module.flat_map(counted_in);
        counted.chain(self.trained.iter().copied().filter(|(of, ..)| *of == module)).collect()
    }

    /// How many updates were applied somewhere and are not on the chains given.
    pub fn given_up(&self, surviving: usize) -> usize {
        self.updates.len() - surviving
    }
}

/// What an update counts.
pub fn counted_in(signed: &SignedUpdate) -> impl Iterator<Item = Contribution> {
    let module = signed.update.module;
    signed.update.contributions.iter().map(move |counted| (module, counted.path, counted.parent, counted.blob.hash))
}
