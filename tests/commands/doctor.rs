//! `pathswarm doctor` looks at a machine, says what is wrong and what to do, and exits with 2 if something has to be mended.
#![cfg(all(feature = "learning", feature = "network"))]

use crate::run::{Peer, mistake, pathswarm};
use serde_json::Value;

/// What it found, by what it is about; its exit status, and what it said to people.
fn doctor(home: &std::path::Path, more: &[&str]) -> (Vec<Value>, Option<i32>, String) {
    let runs = format!("runs={}", home.display());
    let common = ["doctor", "--format", "json", "--set", &runs, "--set", "device=cpu", "--set", "mdns=false"];
    let said = pathswarm(&[&common[..], more].concat());
    let lines = String::from_utf8(said.stdout).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, said.status.code(), String::from_utf8(said.stderr).unwrap())
}

fn about<'a>(lines: &'a [Value], about: &str) -> &'a Value {
    lines.iter().find(|line| line["about"] == about).unwrap_or_else(|| panic!("nothing about {about}: {lines:?}"))
}

const QUIC: &str = "/ip4/127.0.0.1/udp/0/quic-v1";

#[test]
fn a_machine_that_will_do_is_told_so_with_numbers() {
    let home = tempfile::tempdir().unwrap();
    let (lines, status, said) = doctor(home.path(), &["--listen", QUIC]);
    assert_eq!(status, Some(0), "{said}");
    assert!(about(&lines, "disk")["values"]["bytes_per_s"].as_f64().unwrap() > 0.0);
    assert!(about(&lines, "speed")["values"]["tokens_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(about(&lines, "device")["values"]["device"], "cpu");
    assert!(about(&lines, "ports")["found"].as_str().unwrap().contains("/ip4/127.0.0.1/udp/"));
    assert!(about(&lines, "outside")["remedy"].as_str().unwrap().contains("pathswarm doctor ADDRESS"));
    about(&lines, "clock");
    assert_eq!(lines.last().unwrap()["wrong"], 0);
}

#[test]
fn what_is_wrong_comes_with_its_remedy_and_exit_status_2() {
    let home = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("/ip4/127.0.0.1/tcp/{}", listener.local_addr().unwrap().port());
    let (lines, status, said) = doctor(home.path(), &["--listen", &taken]);
    assert_eq!(status, Some(2));
    assert_eq!(about(&lines, "ports")["verdict"], "wrong");
    assert!(said.contains(&taken) && said.contains("hint: ") && said.contains("--listen"), "{said}");

    let nobody = format!("{QUIC}/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN").replace("udp/0", "udp/9");
    let (lines, status, said) = doctor(home.path(), &["--listen", QUIC, &nobody]);
    assert_eq!((status, &about(&lines, "peer")["verdict"]), (Some(2), &Value::from("wrong")), "{said}");
}

#[test]
fn a_device_is_compared_with_the_cpu_and_one_that_does_not_exist_is_the_users_mistake() {
    let compared = pathswarm(&["doctor", "--device", "cpu", "--sizes", "0", "--format", "json"]);
    assert!(compared.status.success());
    let lines = String::from_utf8(compared.stdout).unwrap();
    assert_eq!(lines.lines().filter(|line| line.contains(r#""about":"agreement""#)).count(), 10, "{lines}");
    let said = mistake(&["doctor", "--device", "tpu"]);
    assert!(said.contains("\"tpu\"") && said.contains("\"cuda\""), "{said}");
}

#[test]
fn a_relay_says_where_it_sees_this_machine() {
    let home = tempfile::tempdir().unwrap();
    let mut relay = Peer::start(&home.path().join("relay"), &["relay"]);
    let address = relay.wait_for("relay")["address"].as_str().unwrap().to_owned();
    let (lines, status, said) = doctor(home.path(), &["--listen", QUIC, &address]);
    assert_eq!(status, Some(0), "{said}");
    assert!(about(&lines, "peer")["found"].as_str().unwrap().contains("relay"), "{lines:?}");
    let seen = &about(&lines, "router")["values"]["seen_at"];
    assert!(seen[0].as_str().unwrap().starts_with("/ip4/127.0.0.1/"), "{lines:?}");
    about(&lines, "reachability");
}
