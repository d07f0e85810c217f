//! A tokenizer, and what it makes of a text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::text::Tokenizer;

fuzz_target!(
    // The library's panics are caught where it is called: no hook may end the process before.
    init: std::panic::set_hook(Box::new(|_| {})),
    |bytes: &[u8]| {
        let Ok(tokenizer) = Tokenizer::from_json(bytes) else { return };
        if let Ok(ids) = tokenizer.encode("A text of few words.") {
            assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocabulary()));
            let _ = tokenizer.decode(&ids);
        }
        let _ = (tokenizer.end_name(), tokenizer.end_of_document());
    }
);
