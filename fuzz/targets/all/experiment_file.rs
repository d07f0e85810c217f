//! Files of experiments.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::experiment::plan::Experiment;

fuzz_target!(|text: &str| {
    let _ = Experiment::from_toml(text);
});
