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
use std::time::Duration;

use clap::Args;
use tokio::runtime::Runtime;

use super::Globals;
use super::interrupt::Interrupt;
use super::mistake::Mistake;
use super::running::Display;
use super::web::{PageFlags, talk};
use super::whom::Whom;
use crate::observe::{Progress, View};
use source::Source;

/// How long the command waits for its connections to end.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// `pathswarm watch`
#[derive(Args)]
pub struct Watch {
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    web: PageFlags,
}

impl Watch {
    /// # Errors
    /// If nobody answers there, or there is neither a terminal nor a page to show it on.
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let has_screen = match check_terminal(globals) {
            Err(why) if !self.web.is_asked() => return Err(why.into()),
            checked => checked.is_ok(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let shown = self.show(globals, &runtime, has_screen);
        runtime.shutdown_timeout(ENDS_WITHIN);
        shown
    }

    fn show(&self, globals: &Globals, runtime: &Runtime, has_screen: bool) -> anyhow::Result<()> {
        let source = runtime.block_on(async { Source::open(self.whom.place(globals).await?).await })?;
        let place = source.place();
        let device = globals.machine_only()?.first_device();
        let followed = |display: &Display| runtime.spawn(source.follow(display.telemetry.clone()));
        let open = |display: &Display| {
            let _within = runtime.enter();
            let talk = talk(&display.telemetry, device, self.whom.sponsor());
            self.web.open(&display.telemetry, Some(talk), &|text, value| display.tell(text, value))
        };
        if has_screen {
            let ends = Interrupt::flagged();
            let display = Display::new(Progress::silent());
            let _pages = open(&display)?;
            let _followed = followed(&display);
            return Ok(terminal::show(&display.telemetry, view::ViewState::new(place), ends)?);
        }
        let (progress, _lines) = Progress::start(View::choose(globals.output().is_json()));
        let display = Display::new(progress);
        let _pages = open(&display)?;
        display.progress.note(format!("watching {place}"));
        let followed = followed(&display);
        runtime.block_on(async {
            let interrupt = Interrupt::listen()?;
            tokio::select! {
                () = interrupt.wait() => Ok(()),
                ended = followed => ended?,
            }
        })
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
