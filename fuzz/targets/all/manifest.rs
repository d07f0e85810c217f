//! A run's manifest, and what a newcomer asks of it before it has fetched anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::names::PathId;
use pathswarm::peer::join::parts;
use pathswarm::peer::manifest::Manifest;

fuzz_target!(|bytes: &[u8]| {
    let Ok((manifest, run)) = Manifest::decode(bytes) else { return };
    let _ = (manifest.cost_of_a_path(), manifest.most_trainer_bytes(), manifest.private_blobs());
    let _ = (manifest.for_everybody(), parts(&manifest), manifest.invites(run), manifest.encode());
    if let Ok(plan) = manifest.plan() {
        assert_eq!(plan.slots.grid().modules().len(), manifest.genesis.len());
        let _ = (manifest.text_for(PathId(0)), manifest.text_to_score(PathId(0)));
    }
});
