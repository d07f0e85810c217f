//! Files of drills, and what follows from one: its paths and peers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::simulator::Scenario;

fuzz_target!(|text: &str| {
    if let Ok(scenario) = Scenario::from_toml(text) {
        assert!(scenario.slots().is_ok());
        let peers = scenario.all_peers();
        let _ = scenario.slowness(peers);
    }
});
