//! The command line: one file per command.
//!
//! A command's result goes to standard output, as text or (`--format json`) as JSON Lines; all else goes to standard
//! error. The exit status is 2 where the user can mend what is wrong, 1 where only we can.
//!
//! To add a command: a file with a [`clap::Args`] type that has `fn run(self, globals: &Globals) ->
//! anyhow::Result<()>`, its `mod` line, and one line in the list of commands below, with `#[cfg(feature = …)]` if it
//! needs one.

#[cfg(all(feature = "learning", feature = "network"))]
mod collect;
#[cfg(all(feature = "learning", feature = "network"))]
mod collected_run;
mod config;
#[cfg(all(feature = "learning", feature = "network"))]
mod corpus;
#[cfg(all(feature = "learning", feature = "network"))]
mod evaluate;
#[cfg(all(feature = "learning", feature = "network"))]
mod found;
#[cfg(all(feature = "learning", feature = "network"))]
mod founding_progress;
#[cfg(all(feature = "learning", feature = "network"))]
mod generate;
mod globals;
#[cfg(all(feature = "learning", feature = "network"))]
mod interrupt;
#[cfg(all(feature = "learning", feature = "network"))]
mod join;
#[cfg(all(feature = "learning", feature = "network"))]
mod listen;
mod mistake;
mod output;
#[cfg(all(feature = "learning", feature = "network"))]
mod peer_progress;
#[cfg(all(feature = "learning", feature = "network"))]
mod running;
#[cfg(all(feature = "learning", feature = "network"))]
mod simulate;
#[cfg(all(feature = "learning", feature = "network"))]
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use globals::{Format, Globals};
pub use mistake::{Mistake, OrMistake};
pub use output::Output;

/// The enum of commands and the one `match` that runs them.
macro_rules! commands {
    ($($(#[doc = $doc:literal])* $(#[cfg($($condition:tt)*)])? $name:ident($arguments:ty),)+) => {
        #[derive(Subcommand)]
        enum Command {
            $($(#[doc = $doc])* $(#[cfg($($condition)*)])? $name($arguments),)+
        }

        impl Command {
            fn run(self, globals: &Globals) -> anyhow::Result<()> {
                match self {
                    $($(#[cfg($($condition)*)])? Self::$name(command) => command.run(globals),)+
                }
            }
        }
    };
}

commands! {
    /// Train a run with several peers on this machine, and compare it with a dense path.
    #[cfg(all(feature = "learning", feature = "network"))]
    Simulate(simulate::Simulate),
    /// Start a swarm, train in it, and print the line by which others join.
    #[cfg(all(feature = "learning", feature = "network"))]
    Found(found::Found),
    /// Join a swarm by the address of any of its peers, and train in it.
    #[cfg(all(feature = "learning", feature = "network"))]
    Join(join::Join),
    /// Show what a configuration says and where each value came from.
    Config(config::Config),
    /// Fetch all modules of a run into one folder.
    #[cfg(all(feature = "learning", feature = "network"))]
    Collect(collect::Collect),
    /// Show what running peers are doing.
    #[cfg(all(feature = "learning", feature = "network"))]
    Status(status::Status),
    /// Score a collected run on its test text, or on text of yours.
    #[cfg(all(feature = "learning", feature = "network"))]
    Evaluate(evaluate::Evaluate),
    /// Continue a text with a collected run.
    #[cfg(all(feature = "learning", feature = "network"))]
    Generate(generate::Generate),
}

/// Train one modular language model together: DiPaCo, peer to peer.
#[derive(Parser)]
#[command(name = "pathswarm", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

/// Runs the program: reads the command line, runs the command, says what went wrong.
pub fn main() -> ExitCode {
    #[cfg(feature = "learning")]
    crate::model::spin_briefly();
    let CommandLine { globals, command } = CommandLine::parse();
    match command.run(&globals) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::reader_is_gone(&error) => ExitCode::SUCCESS,
        Err(error) => mistake::report(&error, globals.output()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        CommandLine::command().debug_assert();
    }
}
