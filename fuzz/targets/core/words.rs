//! Single words, as they stand in files, in notes and on the command line: names, links, settings.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::config::{Link, Setting, Settings};
use pathswarm::names::{BlobHash, ModuleId};

fuzz_target!(|text: &str| {
    if let Ok(module) = text.parse::<ModuleId>() {
        assert_eq!(module.to_string().parse(), Ok(module));
    }
    if let Ok(hash) = text.parse::<BlobHash>() {
        assert_eq!(hash.to_string(), text.to_ascii_lowercase());
    }
    if let Ok(link) = text.parse::<Link>() {
        assert!(link.to_string().parse::<Link>().is_ok(), "{link}");
    }
    let _ = Setting::parse("--set", text).map(|setting| Settings::new([], vec![setting]));
    let _ = Settings::new([("PATHSWARM_TRAINING_PHASES".to_owned(), text.to_owned())], Vec::new());
});
