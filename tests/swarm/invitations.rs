//! A run by invitation, as its users see it: who has none stays outside, whoever was invited trains, invites others without
//! the creator, and is gone when it is sent away.

use std::os::unix::fs::PermissionsExt;

use crate::run::{Peer, RUN, World, mistake, pathswarm};
use serde_json::Value;

fn said(arguments: &[&str]) -> Value {
    let output = pathswarm(&[arguments, &["--format", "json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(String::from_utf8(output.stdout).unwrap().lines().last().unwrap()).unwrap()
}

fn invitation(folder: &str, more: &[&str]) -> String {
    let said = said(&[&["invite", folder], more].concat());
    assert_eq!(said["event"], "invitation");
    said["invitation"].as_str().unwrap().to_owned()
}

/// What the line says of the one that was turned away.
fn key_in(said: &str) -> String {
    let key = said.split("this peer's key is ").nth(1).unwrap();
    key.chars().take_while(char::is_ascii_hexdigit).collect()
}

#[test]
fn only_who_is_invited_takes_part_and_the_creator_is_not_needed_for_it() {
    let world = World::of(&format!("admission = \"invite\"\n{RUN}"), 4);
    let found = ["found", &world.config, "--corpus", &world.corpus, "--share-text"];
    let mut creator = Peer::start(&world.path("a"), &[&found[..], &["--set", "training.inner_steps=40"]].concat());
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    let folder = |name: &str| world.name(name);

    // Without an invitation, nobody gets anything, and is told what to do.
    let loopback = ["--listen", "/ip4/127.0.0.1/udp/0/quic-v1"];
    let outside = |name: &str, more: &[&str]| {
        mistake(&[&["join", &address, "--dir", &folder(name)], &loopback[..], more].concat())
    };
    let turned_away = outside("b", &[]);
    assert!(
        turned_away.contains("this run is by invitation") && turned_away.contains("pathswarm invite"),
        "{turned_away}"
    );
    assert!(mistake(&["evaluate", &address]).contains("--as DIR"));
    assert!(mistake(&["collect", &folder("model"), "--from", &address]).contains("--as DIR"));

    // By its key, with the right to invite others.
    let key = key_in(&turned_away);
    assert_eq!(key_in(&outside("b", &[])), key, "its key stays");
    let file = folder("for-b");
    said(&["invite", &folder("a"), "--for", &key, "--may-invite", "1", "--out", &file]);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(outside("c", &["--invitation", &file]).contains("the invitation is for peer"));
    let mut b = Peer::start(&world.path("b"), &["join", &address, "--invitation", &file]);
    b.wait_for("joining");
    let listens = |peer: &Peer| Some(peer.status()?["addresses"][0].as_str()?.to_owned());
    let at_b = std::iter::from_fn(|| Some((listens(&b), b.event()))).find_map(|(at, _)| at).unwrap();

    // The creator goes for good, once the other has all four modules; that one invites a third, by a word.
    let has_all = |peer: &Peer| {
        let status = peer.status()?;
        let modules = status["modules"].as_array()?;
        (modules.len() == 4 && modules.iter().all(|module| module["version"].is_u64())).then_some(())
    };
    std::iter::from_fn(|| Some((has_all(&b), b.event()))).find_map(|(has, _)| has).unwrap();
    creator.signal("INT");
    creator.ended();
    let word = invitation(&folder("b"), &["--use-within", "1"]);
    assert!(mistake(&["invite", &folder("b"), "--may-invite", "1"]).contains("may not invite"));
    let mut c = Peer::start(&world.path("c"), &["join", &at_b, "--invitation", &word]);
    assert_eq!(c.wait_for("joining")["name"], "processes");
    let used = mistake(&[&["join", &at_b, "--dir", &folder("d"), "--invitation", &word], &loopback[..]].concat());
    assert!(used.contains("another peer has used"), "{used}");

    // They train together: each knows the other.
    let knows = |peer: &Peer, other: &str| {
        let status = peer.status()?;
        let known = status["peers"].as_array()?.iter().any(|known| known == other);
        known.then_some(status)
    };
    let key_of_c = std::iter::from_fn(|| Some((c.status(), c.event()))).find_map(|(status, _)| status).unwrap()["peer"]
        .as_str()
        .unwrap()
        .to_owned();
    let status = std::iter::from_fn(|| Some((knows(&b, &key_of_c), b.event()))).find_map(|(status, _)| status).unwrap();
    assert_eq!(status["invited"]["refused"], Value::Null);

    // A visitor in somebody's name.
    said(&["collect", &folder("model"), "--from", &at_b, "--as", &folder("c")]);

    // Who sends it away is heard by the one itself, and it does not come back.
    assert!(said(&["revoke", &folder("b"), &key_of_c])["message"].as_str().unwrap().contains("is revoked"));
    let refused = |peer: &Peer| peer.status()?["invited"]["refused"].as_str().map(str::to_owned);
    let reason = std::iter::from_fn(|| Some((refused(&c), c.event()))).find_map(|(reason, _)| reason).unwrap();
    assert!(reason.contains("was revoked by"), "{reason}");
    c.kill();
    let again = mistake(&[&["join", &at_b, "--dir", &folder("c")], &loopback[..]].concat());
    assert!(again.contains("was revoked by"), "{again}");
    // Nor after a restart of the other.
    b.kill();
    let mut b = Peer::start(&world.path("b"), &["join", &address]);
    b.wait_for("joining");
    let at_b = std::iter::from_fn(|| Some((listens(&b), b.event()))).find_map(|(at, _)| at).unwrap();
    let again = mistake(&[&["join", &at_b, "--dir", &folder("c")], &loopback[..]].concat());
    assert!(again.contains("was revoked by"), "{again}");
}

#[test]
fn a_doctor_is_answered_without_an_invitation_and_lent_bytes_in_a_peers_name() {
    let world = World::of(&format!("admission = \"invite\"\n{RUN}"), 4);
    let mut creator = Peer::start(&world.path("a"), &["found", &world.config, "--corpus", &world.corpus]);
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    let examined = |more: &[&str]| {
        let listen = ["--listen", "/ip4/127.0.0.1/udp/0/quic-v1", "--set", "device=cpu", "--set", "mdns=false"];
        let output = pathswarm(&[&["doctor", &address, "--format", "json"], &listen[..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let unknown = examined(&[]);
    assert!(unknown.contains("--as DIR") && !unknown.contains("\"bandwidth\""), "{unknown}");
    assert!(examined(&["--as", &world.name("a")]).contains("\"bandwidth\""));
}

#[test]
fn a_simulated_swarm_invites_its_own_peers() {
    let run = RUN.replace("inner_steps = 400", "inner_steps = 5").replace("phases = 12", "phases = 2");
    let world = World::of(&format!("admission = \"invite\"\n{run}"), 4);
    world.simulated();
}
