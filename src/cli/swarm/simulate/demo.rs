//! `pathswarm demo`: a simulation that needs nothing but the program, which has its configuration and its text in it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use rust_embed::RustEmbed;

use crate::cli::mistake::Mistake;
use crate::cli::process::private_files;
use crate::cli::swarm::Globals;
use crate::cli::swarm::simulate::{Options, Simulate};
use crate::store::write_file;

/// The configuration.
const CONFIG: &str = include_str!("../../../../configs/demo.toml");

/// Its name in the folder.
const CONFIG_FILE: &str = "demo.toml";

/// The folder of the text.
const TEXT: &str = "demo-text";

/// Prose: the documentation.
#[derive(RustEmbed)]
#[folder = "docs"]
#[include = "*.md"]
struct Documentation;

/// Rust: a part of this program.
#[derive(RustEmbed)]
#[folder = "src/peer"]
#[include = "*.rs"]
struct Sources;

/// Train a small run with four peers on this machine, with the configuration and the text that are in the program: its
/// documentation and some of its sources, or your own text.
#[derive(Args)]
pub struct Demo {
    #[command(flatten)]
    options: Options,
}

impl Demo {
    pub fn run(mut self, globals: &Globals) -> anyhow::Result<()> {
        private_files();
        let folder = match &self.options.dir {
            Some(folder) => folder.clone(),
            None => globals.machine()?.value.runs.join("demo"),
        };
        let file = folder.join(CONFIG_FILE);
        if !file.exists() {
            if std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) {
                let message = format!("{} has something else in it, and no {CONFIG_FILE}", folder.display());
                return Err(Mistake::new(message).hint("name another folder with --dir").into());
            }
            std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            write_file(&file, CONFIG.as_bytes())?;
        }
        if self.options.corpus.text.corpus.is_empty() {
            self.options.corpus.text.corpus = vec![unpacked(&folder)?];
        }
        self.options.dir = Some(folder);
        Simulate { file, options: self.options }.run(globals)
    }
}

/// Writes the text into the folder, unless it is there.
fn unpacked(folder: &Path) -> anyhow::Result<PathBuf> {
    let text = folder.join(TEXT);
    if text.exists() {
        return Ok(text);
    }
    // Complete, or not there.
    let unfinished = folder.join(format!("{TEXT}.unfinished"));
    let documents = Documentation::iter().filter_map(|name| Some((name.clone(), Documentation::get(&name)?)));
    let sources = Sources::iter().filter_map(|name| Some((name.clone(), Sources::get(&name)?)));
    for (name, file) in documents.chain(sources) {
        let path = unfinished.join(name.as_ref());
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        write_file(&path, &file.data)?;
    }
    std::fs::rename(&unfinished, &text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_enough_prose_and_enough_rust_and_is_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let text = unpacked(folder.path()).unwrap();
        let bytes = |extension: &str| -> u64 {
            let mut folders = vec![text.clone()];
            let mut sum = 0;
            while let Some(folder) = folders.pop() {
                for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                    match entry.file_type().unwrap().is_dir() {
                        true => folders.push(entry.path()),
                        false if entry.path().extension().is_some_and(|it| it == extension) => {
                            sum += entry.metadata().unwrap().len();
                        }
                        false => {}
                    }
                }
            }
            sum
        };
        assert!(bytes("md") > 400_000 && bytes("rs") > 400_000, "{} and {}", bytes("md"), bytes("rs"));
        std::fs::write(text.join("mine.md"), "mine").unwrap();
        assert_eq!(unpacked(folder.path()).unwrap(), text);
        assert!(text.join("mine.md").exists());
    }
}
