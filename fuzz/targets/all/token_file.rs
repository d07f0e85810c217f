//! A file of tokens.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::text::TokenSet;

const VOCABULARY: usize = 1_000;
const CONTEXT: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let Ok(set) = TokenSet::decode(bytes, VOCABULARY, CONTEXT) else { return };
    for at in 0..set.len() {
        assert!(set.sequence(at).iter().all(|id| (*id as usize) < VOCABULARY));
        let _ = (set.document(at), set.begins_document(at), set.prefix(at, 8));
    }
    let again =
        TokenSet::decode(&set.encode(), VOCABULARY, CONTEXT).expect("what was read can be written and read again");
    assert_eq!((again.len(), again.tokens()), (set.len(), set.tokens()));
});
