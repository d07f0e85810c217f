//! Files that people write: those that come with the program.

use std::path::{Path, PathBuf};

use super::Seeds;

/// All files with an ending below a folder of the project.
pub fn all_in(folder: &str, ending: &str) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder))? {
        let path = entry?.path();
        found.extend(path.extension().is_some_and(|own| own == ending).then_some(path));
    }
    found.sort();
    Ok(found)
}

pub fn add(seeds: &mut Seeds) -> std::io::Result<()> {
    for (target, folder) in [("run_file", "configs"), ("run_file", "peers"), ("drill_file", "configs/drills")] {
        for path in all_in(folder, "toml")? {
            seeds.add(target, std::fs::read(path)?);
        }
    }
    let words =
        ["1.0", "20mbit/100ms/1%", "5mbit:1gbit/30ms", "training.phases=3", "name=demo", "sample={ paths = 4 }"];
    words.into_iter().for_each(|word| seeds.add("words", word));
    seeds.add("words", "0f".repeat(32));
    Ok(())
}
