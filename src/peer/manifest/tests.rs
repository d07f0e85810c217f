//! Tests of manifests, valid and invalid.

use std::collections::BTreeSet;

use crate::config::{LevelConfig, OuterMode};
use crate::grid::Sharing;
use crate::names::{BlobRef, PathId};
use crate::peer::manifest::shard_table::{Shards, TableError, encode_table, table_bytes};
use crate::peer::manifest::{Manifest, ManifestError, Resharding};
use crate::peer::tests::tiny_run::Tiny;

#[test]
fn text_that_is_kept_for_others_may_go_but_not_what_is_needed_nor_what_nobody_sends() {
    let mut tiny = Tiny::create(true);
    let mut shards = tiny.decoded.shards.listed().to_vec();
    // As for two paths without any test text.
    shards[1].test = shards[0].test;
    for (shard, text) in shards.iter_mut().zip([b"a", b"b"]) {
        shard.held_out = BlobRef::of(text);
    }
    tiny.decoded.shards = Shards::in_table(shards.clone(), tiny.decoded.shards.table);
    let besides = |tiny: &Tiny, path| tiny.decoded.text_besides(&BTreeSet::from([PathId(path)]));
    assert_eq!(besides(&tiny, 0), BTreeSet::from([shards[1].train.hash, shards[1].held_out.hash]));
    assert_eq!(besides(&tiny, 1), BTreeSet::from([shards[0].train.hash, shards[0].held_out.hash]));
    tiny.decoded.share_text = false;
    assert_eq!(besides(&tiny, 0), BTreeSet::new());
}

#[test]
fn sizes_that_cannot_be_are_told_of_as_what_they_are() {
    let mut tiny = Tiny::create(true).decoded;
    (tiny.ancestor.bytes, tiny.router.bytes) = (u64::MAX, u64::MAX);
    tiny.shards.largest_bytes = u64::MAX;
    let parts = Resharding { atlas: tiny.ancestor, slice: tiny.ancestor, slice_documents: 1 };
    for resharding in [None, Some(parts)] {
        let cost = Manifest { resharding, ..tiny.clone() }.cost_of_a_path();
        assert_eq!([cost.download_bytes, cost.disk_bytes, cost.host_bytes], [u64::MAX; 3]);
    }
}

#[test]
fn more_modules_than_can_be_listed_are_refused_before_they_are_listed() {
    let mut tiny = Tiny::create(true).decoded;
    let config = &mut tiny.config;
    config.model.blocks = 1024;
    let level = |part: String, sharing| LevelConfig { parts: vec![part], sharing };
    config.levels = (0..1024).map(|block| level(format!("block.{block}"), Sharing::Path)).collect();
    config.levels.push(level("embedding".to_owned(), Sharing::Experts(1 << 10)));
    config.levels.push(level("final-norm".to_owned(), Sharing::Experts(1 << 10)));
    if !config.model.tied_head {
        config.levels.push(level("head".to_owned(), Sharing::Shared));
    }
    // A round would not count so many paths.
    config.outer.mode = OuterMode::Asynchronous;
    let table = BlobRef { bytes: table_bytes(1 << 20), ..tiny.ancestor };
    tiny.shards = Shards::in_table(Vec::new(), table);
    let refused = Manifest::decode(&tiny.encode().unwrap()).unwrap_err();
    let least = 1024 << 20;
    assert!(matches!(refused, ManifestError::Count { expected, .. } if expected > least), "{refused}");
}

#[test]
fn shards_have_to_be_read_before_anything_is_planned() {
    let tiny = Tiny::create(true);
    let (mut manifest, _) = Manifest::decode(&tiny.manifest).unwrap();
    let table = manifest.shards.table;
    assert!(manifest.for_everybody().contains(&table));
    assert_eq!(manifest.cost_of_a_path(), tiny.decoded.cost_of_a_path());
    assert!(manifest.take_table(&tiny.manifest).is_err());
    assert!(matches!(manifest.plan(), Err(ManifestError::NoTable)));
    let bytes = tiny.blobs.get(table.hash, table.bytes).unwrap().unwrap();
    tiny.blobs.remove(table.hash).unwrap();
    assert!(manifest.clone().with_table_in(&tiny.blobs).is_err());
    tiny.blobs.put(&bytes).unwrap();
    let manifest = manifest.with_table_in(&tiny.blobs).unwrap();
    assert_eq!(manifest.plan().unwrap().weights, tiny.decoded.plan().unwrap().weights);
    let short = Shards::in_table(vec![], BlobRef::of(&encode_table(&[])));
    let bytes = Manifest { shards: short, ..manifest }.encode().unwrap();
    assert!(matches!(Manifest::decode(&bytes), Err(ManifestError::Table(TableError::Header(2)))));
}
