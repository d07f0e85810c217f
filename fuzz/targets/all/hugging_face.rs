//! The settings of a model from elsewhere.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::model::hugging_face::settings::{read, write};

fuzz_target!(|bytes: &[u8]| {
    let Ok(model) = read(bytes) else { return };
    let again = write(&model, 0).expect("what can be read can be written");
    assert_eq!(read(&again).expect("what was written can be read"), model);
});
