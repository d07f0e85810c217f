//! `pathswarm completions` and `pathswarm man`: what shells and man know of the program.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;

use crate::cli::{Globals, OrMistake, command_line};

/// Print what lets a shell complete commands, options and values.
#[derive(Args)]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let mut written = Vec::new();
        clap_complete::generate(self.shell, &mut command_line(), "pathswarm", &mut written);
        globals.output().text(String::from_utf8_lossy(&written).trim_end())?;
        let text = serde_json::json!({ "event": "result", "text": String::from_utf8_lossy(&written) });
        Ok(globals.output().json(&text)?)
    }
}

/// Write the manual as pages for man.
#[derive(Args)]
pub struct Man {
    /// A folder such as ~/.local/share/man/man1, which is made if it is missing.
    folder: PathBuf,
}

impl Man {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let folder = self.folder.display();
        let made = std::fs::create_dir_all(&self.folder).map_err(|error| format!("cannot make {folder}: {error}"));
        made.or_mistake("name a folder in one that is there and that you may write to")?;
        clap_mangen::generate_to(command_line(), &self.folder)
            .with_context(|| format!("cannot write into {folder}"))?;
        globals.output().text(&format!("{folder}: pathswarm.1 and a page of each command"))?;
        Ok(globals.output().json(&serde_json::json!({ "event": "result", "folder": self.folder.to_string_lossy() }))?)
    }
}
