//! The drills of configs/drills, read and run.

use std::path::Path;
use std::sync::Arc;

use pathswarm::simulator::Scenario;
use pathswarm::simulator::drill::{Summary, drill};

/// The number of seeds of each scenario but the fault schedule, which is long. `pathswarm drill` runs thousands.
pub const SEEDS: u64 = 60;

/// A scenario by the name of its file.
pub fn scenario(name: &str) -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/drills").join(name).with_extension("toml");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    Scenario::from_toml(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Runs so many seeds, in none of which an invariant breaks.
pub fn drilled(scenario: Scenario, seeds: u64) -> Summary {
    drill(&Arc::new(scenario), 0..seeds, |_| {}).unwrap_or_else(|failure| panic!("{failure}"))
}
