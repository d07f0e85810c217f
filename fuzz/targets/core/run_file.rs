//! Files of runs and of machines, and what follows from a run: its grid, its paths, its parameters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::config::{MachineConfig, RunConfig, Settings, level_parameters};

fuzz_target!(|text: &str| {
    let _ = toml::from_str::<MachineConfig>(text);
    let run = RunConfig::from_toml(text);
    if let Ok(run) = &run {
        assert!(run.grid().is_ok() && run.slots().is_ok());
        let _ = run.training.total_steps();
        let parameters: usize = run.levels.iter().map(|level| level_parameters(&run.model, level)).sum();
        let whole = run.undivided();
        assert_eq!(parameters, level_parameters(&whole.model, &whole.levels[0]));
    }
    // The same from a file, where a mistake has a line.
    let file = std::env::temp_dir().join(format!("fuzzed-run-{}.toml", std::process::id()));
    std::fs::write(&file, text).expect("the folder for temporary files can be written");
    assert_eq!(Settings::default().run(&file).is_ok(), run.is_ok());
});
