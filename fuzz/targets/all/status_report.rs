//! The status that a peer tells others: JSON, compressed. Behind a 0 the bytes are JSON, which is compressed here.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::peer::status::report::{decode, encode};

fuzz_target!(|input: &[u8]| {
    let packed = match input.split_first() {
        Some((0, json)) => zstd::bulk::compress(json, 1).unwrap(),
        _ => input.to_vec(),
    };
    if let Ok(status) = decode(&packed) {
        // What was told once is told again.
        assert!(encode(status).is_ok());
    }
});
