//! `pathswarm watch`: the swarm of other processes, as a page or in the terminal.

mod source;

use clap::Args;

use super::Globals;
use super::interrupt::Interrupt;
use super::running::Display;
use super::web::{WebFlags, talk};
use super::whom::Whom;
use crate::cli::process::runtime;
use crate::observe::{Progress, View};
use source::Source;

/// `pathswarm watch`
#[derive(Args)]
pub struct Watch {
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    web: WebFlags,
}

impl Watch {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        runtime::run(async {
            let interrupt = Interrupt::listen()?;
            let source = Source::open(self.whom.place(globals).await?).await?;
            let (progress, _screen) = Progress::start(View::choose(globals.output().is_json()));
            let display = Display::new(progress);
            let device = globals.machine_only()?.first_device();
            let talk = talk(&display.telemetry, device, self.whom.sponsor());
            let _pages = self.web.open(&display, Some(talk))?;
            display.progress.note(format!("watching {}", source.place()));
            tokio::select! {
                () = interrupt.wait() => Ok(()),
                followed = source.follow(display.telemetry.clone()) => followed,
            }
        })
    }
}
