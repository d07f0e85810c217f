//! Writes what fuzzing begins with: well-formed inputs of each target, as the program's own code writes them. `seeds FOLDER`
//! makes a folder in it for each target.

mod files;
mod frames;
mod messages;
#[cfg(feature = "all")]
mod rest;
#[cfg(feature = "all")]
mod texts;

// Targets and this program are built alike, and so is what counts the branches that they take.
use libfuzzer_sys as _;

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The seeds of all targets, by target.
#[derive(Default)]
struct Seeds(BTreeMap<&'static str, Vec<Vec<u8>>>);

impl Seeds {
    fn add(&mut self, target: &'static str, input: impl Into<Vec<u8>>) {
        self.0.entry(target).or_default().push(input.into());
    }
}

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("the folder to write to"));
    let mut seeds = Seeds::default();
    messages::add(&mut seeds);
    frames::add(&mut seeds);
    files::add(&mut seeds)?;
    #[cfg(feature = "all")]
    {
        rest::add(&mut seeds)?;
        texts::add(&mut seeds)?;
    }
    for (target, inputs) in seeds.0 {
        let folder = folder.join(target);
        std::fs::create_dir_all(&folder)?;
        for (number, input) in inputs.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number:03}")), input)?;
        }
        println!("{target}: {} seeds", inputs.len());
    }
    Ok(())
}
