//! `pathswarm watch`: what running peers are doing, as a screen in a terminal that follows them.
//!
//! [`source`] asks the peers, [`crate::telemetry`] keeps what they say, and its overview is what [`screen`] draws: a
//! function of the overview and of what is looked at ([`view`]). [`terminal`] has the loop, and gives the terminal back.

mod document;
mod format;
mod keys;
mod screen;
mod source;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod text;
mod theme;
mod view;
mod views;

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;

use super::Globals;
use super::interrupt::Interrupt;
use super::mistake::Mistake;
use crate::telemetry::Telemetry;

/// `pathswarm watch`
#[derive(Args)]
pub struct Watch {
    /// A peer's folder, or one with several in it; by default the folder of this machine's runs.
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Watch {
    /// # Errors
    /// If standard output is no terminal, or there is no such folder.
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        check_terminal(globals)?;
        let folder = match self.folder {
            Some(folder) => folder,
            None => globals.machine()?.value.runs,
        };
        if !folder.is_dir() {
            let hint = "name the folder of a peer that runs, as pathswarm create and pathswarm join print it";
            return Err(Mistake::new(format!("{} is not a folder", folder.display())).hint(hint).into());
        }
        let ends = Interrupt::flagged();
        let telemetry = Telemetry::default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let view = view::ViewState::new(folder.display().to_string());
        runtime.spawn(source::follow(telemetry.clone(), folder));
        let shown = terminal::show(&telemetry, view, ends);
        runtime.shutdown_background();
        Ok(shown?)
    }
}

/// Whether there is a terminal that a screen can be drawn on.
fn check_terminal(globals: &Globals) -> Result<(), Mistake> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|kind| kind == "dumb");
    let why = match () {
        () if globals.output().is_json() => "a screen is for people, and --format json is for programs",
        () if !std::io::stdout().is_terminal() => "standard output is not a terminal",
        () if is_dumb => "this terminal (TERM=dumb) cannot show a screen",
        () => return Ok(()),
    };
    let hint = "pathswarm status prints the same once, also with --format json; over SSH, ssh -t gives a terminal";
    Err(Mistake::new(why).hint(hint))
}
