//! Files of text, of conversations and prepared images. The last byte says of which kind the file is.
#![no_main]

use std::sync::atomic::AtomicBool;

use libfuzzer_sys::fuzz_target;
use pathswarm::config::{Reads, TextConfig, TextFormat};
use pathswarm::text::{CorpusSource, read_corpus};

const FORMATS: [TextFormat; 3] = [TextFormat::Text, TextFormat::Chat, TextFormat::PromptCompletion];
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
        let format = FORMATS[usize::from(*kind) / ENDINGS.len() % FORMATS.len()];
        let text = TextConfig { format, ..TextConfig::default() };
        if let Ok(corpus) = read_corpus(&source, (&text, reads), &AtomicBool::new(false)) {
            let texts = corpus.documents.len() + corpus.masked.len();
            assert!(texts > 0 || corpus.images.iter().all(|ids| ids.len() == 13));
            for masked in &corpus.masked {
                assert!(masked.learnt.iter().all(|part| !masked.text[part.clone()].is_empty()));
            }
        }
        std::fs::remove_file(&file).expect("it was just written");
    }
);
