//! Files of text and prepared images. The last byte says of which kind the file is.
#![no_main]

use std::sync::atomic::AtomicBool;

use libfuzzer_sys::fuzz_target;
use pathswarm::config::{Reads, TextConfig};
use pathswarm::text::{CorpusSource, read_corpus};

const ENDINGS: [&str; 7] = ["txt", "jsonl", "jsonl.zst", "txt.gz", "txt.zst", "parquet", "images"];

fuzz_target!(
    // The Parquet library's panics are caught where it is called: no hook may end the process before.
    init: std::panic::set_hook(Box::new(|_| {})),
    |input: &[u8]| {
        let Some((kind, bytes)) = input.split_last() else { return };
        let ending = ENDINGS[usize::from(*kind) % ENDINGS.len()];
        let file = std::env::temp_dir().join(format!("fuzzed-corpus-{}.{ending}", std::process::id()));
        std::fs::write(&file, bytes).expect("the folder for temporary files can be written");
        let reads = if ending == "images" { Reads::Images { side: 2, classes: 3 } } else { Reads::Text };
        let source = CorpusSource::Paths(vec![file.clone()]);
        if let Ok(corpus) = read_corpus(&source, (&TextConfig::default(), reads), &AtomicBool::new(false)) {
            assert!(!corpus.documents.is_empty() || corpus.images.iter().all(|ids| ids.len() == 13));
        }
        std::fs::remove_file(&file).expect("it was just written");
    }
);
