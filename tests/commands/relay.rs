//! `pathswarm relay`: a process that says where it is, counts what it carries, and is the same one when it comes back.
#![cfg(feature = "network")]

use std::process::Output;

use crate::run::{Peer, pathswarm};

fn name(address: &str) -> &str {
    address.rsplit_once("/p2p/").unwrap().1
}

#[test]
fn a_relay_says_where_it_is_and_what_it_carries_ends_well_and_comes_back_as_the_same() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("relay");
    let mut names = Vec::new();
    for _ in 0..2 {
        let mut relay = Peer::start(&folder, &["relay", "--every", "1"]);
        let address = relay.wait_for("relay")["address"].as_str().unwrap().to_owned();
        assert!(address.starts_with("/ip4/127.0.0.1/udp/"), "{address}");
        names.push(name(&address).to_owned());
        assert_eq!(relay.wait_for("carries")["counts"]["circuits"], 0);
        relay.signal("INT");
        assert_eq!(relay.wait_for("stopped")["counts"]["reservations"], 0);
        assert_eq!(relay.ended(), Some(0));
    }
    assert_eq!(names[0], names[1], "its address stays true");
}

#[test]
fn a_relay_that_cannot_be_is_explained_and_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("relay");
    let begin = |more: &[&str]| pathswarm(&[&["relay", "--dir", folder.to_str().unwrap()][..], more].concat());
    let said = |Output { status, stderr, .. }: Output| (status.code(), String::from_utf8(stderr).unwrap());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("/ip4/127.0.0.1/tcp/{}", listener.local_addr().unwrap().port());
    for wrong in ["port 4001", "/ip4/127.0.0.1", &taken] {
        let (status, said) = said(begin(&["--listen", wrong]));
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains(wrong) && said.contains("hint: "), "{said}");
    }
    let list = home.path().join("list");
    std::fs::write(&list, "# friends\n\nno key\n").unwrap();
    for (list, place) in [(list, "line 3"), (home.path().join("none"), "none")] {
        let (status, said) = said(begin(&["--allow", list.to_str().unwrap()]));
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains(place) && said.contains("hint: "), "{said}");
    }
    assert!(!folder.exists());
}
