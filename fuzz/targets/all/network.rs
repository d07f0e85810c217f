//! What the network reads below messages: questions behind their lengths, addresses, signatures.
#![no_main]

use futures::executor::block_on;
use libfuzzer_sys::fuzz_target;
use pathswarm::names::PeerKey;
use pathswarm::network::{
    Multiaddr, is_loopback_address, is_relay_address, is_relayed, key_of, peer_at, read_prefixed, verify, with_peer,
    with_ports_of, worth_telling,
};

const PEER: PeerKey = PeerKey([2; 32]);

fn look_at(address: &Multiaddr) {
    let _ = (is_loopback_address(address), is_relay_address(address), is_relayed(address), peer_at(address));
    let full = with_peer(address, PEER);
    let _ = with_ports_of(std::slice::from_ref(&full), std::slice::from_ref(address));
    assert!(worth_telling(vec![address.clone(), full, address.clone()], 8).len() <= 3);
    // Not every address can be said in words: a name may have a slash in it.
    let _ = address.to_string().parse::<Multiaddr>();
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(read) = block_on(read_prefixed(&mut &bytes[..])) {
        assert_eq!(bytes[4..][..read.len()], read);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = key_of(text);
        if let Ok(address) = text.parse::<Multiaddr>() {
            look_at(&address);
        }
    }
    if let Ok(address) = Multiaddr::try_from(bytes.to_vec()) {
        look_at(&address);
    }
    if let Some((key, signature)) = bytes.split_first_chunk() {
        let _ = verify(PeerKey(*key), b"what is signed", signature);
    }
});
