//! A process that writes to its store is killed at any moment: what it had acknowledged is there, whole and in order.
#![cfg(feature = "network")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use pathswarm::names::{BlobRef, PathId, Phase, RunId};
use pathswarm::store::{Checkpoint, StoreFolder, actor};

const RUN: RunId = RunId([3; 32]);
const FOLDER: &str = "PATHSWARM_TEST_STORE";

fn record(number: u64) -> Vec<u8> {
    let mut record = number.to_le_bytes().to_vec();
    record.extend(vec![number as u8; number as usize * 37 % 900]);
    record
}

/// What the killed process does; in the test process itself there is no folder, and it does nothing.
#[tokio::test]
async fn writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let opened = StoreFolder::open(folder.as_ref(), RUN).unwrap();
    let mut number = opened.records.len() as u64;
    let (store, _threads) = actor::start(opened).unwrap();
    loop {
        store.persist(vec![record(number)]).await.unwrap();
        let state = store.with_blobs(move |blobs| blobs.put(&record(number).repeat(50))).await.unwrap();
        let checkpoint = Checkpoint { phase: Phase(number), trainer: Some(state), modules: Vec::new() };
        store.index(move |index| index.set_checkpoint(PathId(0), &checkpoint)).await.unwrap();
        println!("acknowledged {number}");
        std::io::stdout().flush().unwrap();
        number += 1;
    }
}

#[test]
fn what_was_acknowledged_survives_kill_nine() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged: Vec<u64> = Vec::new();
    for round in 0..6 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["writes_until_it_is_killed", "--exact", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let numbers =
            lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("acknowledged ")?.parse::<u64>().ok());
        acknowledged.extend(numbers.take(5 + round * 7));
        child.kill().unwrap();
        child.wait().unwrap();

        let store = StoreFolder::open(folder.path(), RUN).unwrap();
        let records = store.records.len() as u64;
        assert!((0..).zip(&store.records).all(|(number, found)| *found == record(number)));
        for number in &acknowledged {
            assert!(*number < records, "record {number} of {records} is gone");
            let blob = BlobRef::of(&record(*number).repeat(50));
            let found = store.blobs.get(blob.hash, blob.bytes).unwrap();
            assert!(found.is_some(), "blob {number} is gone");
        }
        // The index may have lost its latest entry; it may not hold a wrong one.
        if let Some(checkpoint) = store.index.checkpoint(PathId(0)).unwrap() {
            assert_eq!(checkpoint.trainer, Some(BlobRef::of(&record(checkpoint.phase.0).repeat(50))));
        }
        assert_eq!(std::fs::read_dir(folder.path().join("blobs/incoming")).unwrap().count(), 0);
    }
    assert!(acknowledged.len() > 100);
}
