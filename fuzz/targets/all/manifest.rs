//! A run's manifest, and what a newcomer asks of it before it has fetched anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::names::PathId;
use pathswarm::peer::join::parts;
use pathswarm::peer::manifest::Manifest;
use pathswarm::peer::manifest::shard_table::{Shard, Shards};

/// As a table that has been read would have them.
const MOST_PATHS: u32 = 1_024;

fuzz_target!(|bytes: &[u8]| {
    let Ok((mut manifest, run)) = Manifest::decode(bytes) else { return };
    let _ = (manifest.cost_of_a_path(), manifest.most_trainer_bytes(), manifest.private_blobs());
    let _ = (manifest.for_everybody(), parts(&manifest), manifest.invites(run), manifest.encode());
    let paths = manifest.config.grid().map_or(0, |grid| grid.path_count());
    if paths <= MOST_PATHS {
        let blob = manifest.ancestor;
        let shard = Shard { train: blob, held_out: blob, test: blob, sequences: 7 };
        manifest.shards = Shards::in_table(vec![shard; paths as usize], manifest.shards.table);
    }
    if let Ok(plan) = manifest.plan() {
        assert_eq!(plan.slots.grid().modules().len(), manifest.genesis.len());
        let _ = (manifest.text_for(PathId(0)), manifest.text_to_score(PathId(0)));
    }
});
