//! Files of text. The last byte says of which kind the file is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::config::TextConfig;
use pathswarm::text::{CorpusSource, read_corpus};

const ENDINGS: [&str; 6] = ["txt", "jsonl", "jsonl.zst", "txt.gz", "txt.zst", "parquet"];

fuzz_target!(
    // The Parquet library's panics are caught where it is called: no hook may end the process before.
    init: std::panic::set_hook(Box::new(|_| {})),
    |input: &[u8]| {
        let Some((kind, bytes)) = input.split_last() else { return };
        let ending = ENDINGS[usize::from(*kind) % ENDINGS.len()];
        let file = std::env::temp_dir().join(format!("fuzzed-corpus-{}.{ending}", std::process::id()));
        std::fs::write(&file, bytes).expect("the folder for temporary files can be written");
        if let Ok(corpus) = read_corpus(&CorpusSource::Paths(vec![file.clone()]), &TextConfig::default()) {
            assert!(!corpus.documents.is_empty());
        }
        std::fs::remove_file(&file).expect("it was just written");
    }
);
