//! The settings of a model from elsewhere, and the files that a run keeps of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::model::hugging_face::PretrainedFiles;
use pathswarm::model::hugging_face::settings::{read, write};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(files) = PretrainedFiles::decode(bytes) {
        let again = files.encode().expect("text");
        assert_eq!(PretrainedFiles::decode(&again).expect("what was written can be read"), files);
    }
    let Ok((model, _)) = read(bytes, None) else { return };
    let again = write(&model, 0, None).expect("what can be read can be written");
    assert_eq!(read(&again, None).expect("what was written can be read").0, model);
});
