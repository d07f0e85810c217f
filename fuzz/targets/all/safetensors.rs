//! Parameters in safetensors files: ours, with their notes, and those of models from elsewhere.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pathswarm::config::RunConfig;
use pathswarm::model::exchange;
use pathswarm::model::hugging_face::{self, WeightFiles};
use pathswarm_fuzz::TINY_RUN;

static RUN: LazyLock<RunConfig> = LazyLock::new(|| RunConfig::from_toml(TINY_RUN).expect("a run"));

fuzz_target!(|bytes: &[u8]| {
    let RunConfig { model, levels, .. } = &*RUN;
    let _ = exchange::notes(bytes);
    for level in levels {
        if let Ok(values) = exchange::decode_level(bytes, model, level) {
            assert!(values.iter().all(|value| value.is_finite()));
        }
    }
    if let Ok(values) = hugging_face::levels(model, levels, &WeightFiles::single(bytes.to_vec())) {
        assert!(values.iter().flatten().all(|value| value.is_finite()));
    }
});
