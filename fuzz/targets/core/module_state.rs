//! A module's state. Behind it: how many parameters the module has, two bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::names::ModuleId;
use pathswarm::outer::ModuleState;

fuzz_target!(|input: &[u8]| {
    let Some((bytes, count)) = input.split_last_chunk() else { return };
    let count = usize::from(u16::from_le_bytes(*count));
    if let Ok(state) = ModuleState::decode(bytes, ModuleId { level: 0, expert: 0 }, count) {
        assert_eq!(state.encode(), bytes);
    }
});
