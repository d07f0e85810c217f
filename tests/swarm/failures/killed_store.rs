//! A process that writes to its store is killed at any moment: what it had acknowledged is there, whole and in order.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use pathswarm::names::{BlobRef, PathId, Phase, RunId};
use pathswarm::seed::Seed;
use pathswarm::store::{Checkpoint, StoreFolder, actor};
use rand::Rng;

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
        let state = store.blobs().put(&record(number).repeat(50)).unwrap();
        let checkpoint = Checkpoint { phase: Phase(number), trainer: state, modules: Vec::new(), shard: state };
        store.index(move |index| index.set_checkpoint(PathId(0), &checkpoint)).await.unwrap();
        println!("acknowledged {number}");
        std::io::stdout().flush().unwrap();
        number += 1;
    }
}

/// What the disk may do to a store besides, while nobody writes to it.
#[derive(Clone, Copy, Debug)]
enum Damage {
    None,
    IndexDeleted,
    IndexTruncated,
    IndexZeroed,
    IndexGarbage,
    JournalTorn,
}

fn harm(folder: &Path, damage: Damage, draws: &mut impl Rng) {
    let db = folder.join("index/db");
    let overwrite = |path: &Path, change: &mut dyn FnMut(&mut Vec<u8>)| {
        let mut bytes = std::fs::read(path).unwrap();
        change(&mut bytes);
        std::fs::write(path, bytes).unwrap();
    };
    match damage {
        Damage::None => {}
        Damage::IndexDeleted => std::fs::remove_dir_all(folder.join("index")).unwrap(),
        Damage::IndexTruncated => overwrite(&db, &mut |bytes| bytes.truncate(bytes.len() / 2)),
        Damage::IndexZeroed => overwrite(&db, &mut |bytes| bytes.fill(0)),
        Damage::IndexGarbage => overwrite(&db, &mut |bytes| draws.fill_bytes(bytes)),
        // What was being appended when it was killed, as far as that came.
        Damage::JournalTorn => overwrite(&folder.join("journal"), &mut |bytes| {
            let mut torn = vec![0; 1 + draws.next_u32() as usize % 700];
            draws.fill_bytes(&mut torn);
            bytes.extend(torn);
        }),
    }
}

/// Lets a process write until it has acknowledged some more, and a little longer. What it acknowledged in all.
fn killed(folder: &Path, draws: &mut impl Rng) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["failures::killed_store::writes_until_it_is_killed", "--exact", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, acknowledged) = sync_channel(100);
    let reader = std::thread::spawn(move || {
        let numbers =
            lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("acknowledged ")?.parse::<u64>().ok());
        numbers.for_each(|number| sender.send(number).unwrap());
    });
    let mut numbers: Vec<u64> = acknowledged.iter().take(1 + draws.next_u32() as usize % 4).collect();
    let longer = Duration::from_micros(u64::from(draws.next_u32() % 4_000));
    numbers.extend(acknowledged.recv_timeout(longer));
    child.kill().unwrap();
    child.wait().unwrap();
    numbers.extend(acknowledged);
    reader.join().unwrap();
    numbers
}

#[test]
fn what_was_acknowledged_survives_kill_nine_two_hundred_times() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut draws = Seed::root(1).child("kills").generator();
    let (mut all, mut torn, mut indexed) = (Vec::new(), 0, false);
    for round in 0..200 {
        let numbers = killed(folder, &mut draws);
        all.extend(&numbers);
        use Damage::{IndexDeleted, IndexGarbage, IndexTruncated, IndexZeroed, JournalTorn};
        let kinds = [IndexDeleted, IndexTruncated, IndexZeroed, IndexGarbage, JournalTorn];
        let damage = if round % 4 == 3 { kinds[round / 4 % kinds.len()] } else { Damage::None };
        harm(folder, damage, &mut draws);

        let store = StoreFolder::open(folder, RUN).unwrap();
        let records = store.records.len() as u64;
        assert!(numbers.iter().all(|number| *number < records), "round {round}: {numbers:?}, {records} are there");
        assert!((0..).zip(&store.records).all(|(number, found)| *found == record(number)), "round {round}");
        torn += usize::from(store.journal.cut_off_bytes() > 0);
        // At the end, all that was ever acknowledged is looked at again.
        for number in if round == 199 { &all } else { &numbers } {
            let number = *number;
            let blob = BlobRef::of(&record(number).repeat(50));
            assert!(store.blobs.get(blob.hash, blob.bytes).unwrap().is_some(), "round {round}: blob {number} is gone");
        }
        // The index may have lost its latest entry, or be built anew; it may not hold a wrong one, nor lose what was
        // flushed and not harmed.
        let found = store.index.checkpoints().unwrap().pop();
        if let Some((_, checkpoint)) = &found {
            assert_eq!(checkpoint.trainer, BlobRef::of(&record(checkpoint.phase.0).repeat(50)));
        }
        let harmed = matches!(damage, IndexDeleted | IndexTruncated | IndexZeroed | IndexGarbage);
        assert!(found.is_some() || harmed || !indexed, "round {round}: the index has forgotten the path");
        indexed = found.is_some();
        assert_eq!(std::fs::read_dir(folder.join("blobs/incoming")).unwrap().count(), 0);
        drop(store);
    }
    assert!(all.len() > 400 && torn >= 10, "{} acknowledged, {torn} torn", all.len());
}
