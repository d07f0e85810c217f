//! What a peer is told that taking part costs, beside what it takes.

use std::path::Path;

use crate::run::{Peer, RUN, World, unhurried};

/// The bytes of all files under a folder that are there while this looks.
fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(there) if there.is_dir() => bytes_in(&entry.path()),
        Ok(there) => there.len(),
        Err(_) => 0,
    };
    entries.map_while(Result::ok).map(of).sum()
}

#[test]
fn a_newcomer_downloads_and_keeps_about_what_it_was_told() {
    // 1.6 million parameters a path, beside which messages and logs are small.
    let run = RUN.replace("width = 32", "width = 256").replace("inner_steps = 400", "inner_steps = 6");
    // Two paths for two peers: who holds several keeps more.
    let (first, second) = run.rsplit_once("sharing = { experts = 2 }").unwrap();
    let run = format!("{first}sharing = \"shared\"{second}");
    let world = World::of(&run.replace("phases = 12", "phases = 900"), 4);
    let found = unhurried(&["create", &world.config, "--share-text", "--corpus", &world.corpus]);
    let mut creator = Peer::start(&world.path("creator"), &found);
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    let mut newcomer = Peer::start(&world.path("newcomer"), &unhurried(&["join", &address]));
    let cost = newcomer.wait_for("joining")["cost"].clone();
    let told = |what: &str| cost[what].as_u64().unwrap() as f64;

    let mut most_kept = 0;
    let mut first = None;
    loop {
        newcomer.catch_up();
        most_kept = most_kept.max(bytes_in(&newcomer.folder));
        let Some(status) = newcomer.status() else { continue };
        let phases = status["phases_trained"].as_u64().unwrap_or(0);
        if phases >= 1 && first.is_none() {
            first = status["traffic"]["blob_bytes_received"].as_u64();
        }
        // All that is kept of sixteen versions is there.
        if phases >= 20 {
            break;
        }
    }
    let (downloaded, kept) = (first.unwrap() as f64, most_kept as f64);
    let most = told("download_bytes") + told("hand_off_bytes") + told("others_text_bytes");
    println!("told {cost}, downloaded {downloaded} until the first phase was trained, kept at most {kept}");
    // A run that has just begun: the states of its modules are computed from the ancestor, not fetched.
    assert!((0.6..1.2).contains(&(downloaded / most)), "{downloaded} of {most}");
    let longest = told("disk_bytes") + told("others_text_bytes");
    assert!((0.8..1.2).contains(&(kept / longest)), "{kept} of {longest}");
}
