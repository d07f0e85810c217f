//! The command line, with one file per command.
//!
//! A command's result goes to standard output, as text or (`--format json`) as JSON Lines; everything else goes to
//! standard error. The exit status is 2 for errors that the user can correct, else 1.
//!
//! To add a command: a file with a [`clap::Args`] type that has `fn run(self, globals: &Globals) ->
//! anyhow::Result<()>`, its `mod` line, and one line in a list of commands: in `swarm` if it needs text, tensors and
//! the network, as most do, else here; and its name in one of [`GROUPS`].

#[cfg(feature = "network")]
mod address;
mod config;
mod data_folder;
mod drill;
mod globals;
#[cfg(feature = "network")]
mod interrupt;
mod manual;
mod mistake;
mod output;
#[cfg(feature = "network")]
mod process;
#[cfg(feature = "network")]
mod relay;
#[cfg(all(feature = "learning", feature = "network"))]
mod swarm;

#[cfg(feature = "network")]
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};

pub use globals::Globals;
pub use mistake::{Mistake, OrMistake};
pub use output::{Format, Output};

/// An enum of commands and the one `match` that runs them. `more` are those of other enums.
macro_rules! commands {
    (
        $visibility:vis enum $commands:ident {
            $($(#[cfg($($condition:tt)*)])? more $others:ident($more:ty),)*
            $($(#[doc = $doc:literal])* $name:ident($arguments:ty),)+
        }
    ) => {
        #[derive(clap::Subcommand)]
        $visibility enum $commands {
            $($(#[cfg($($condition)*)])? #[command(flatten)] $others($more),)*
            $($(#[doc = $doc])* $name($arguments),)+
        }

        impl $commands {
            $visibility fn run(self, globals: &$crate::cli::Globals) -> anyhow::Result<()> {
                match self {
                    $(Self::$name(command) => command.run(globals),)+
                    $($(#[cfg($($condition)*)])? Self::$others(command) => command.run(globals),)*
                }
            }
        }
    };
}
#[cfg(all(feature = "learning", feature = "network"))]
use commands;

commands! {
    enum Command {
        #[cfg(all(feature = "learning", feature = "network"))]
        more Swarm(swarm::Command),
        #[cfg(feature = "network")]
        more Service(Service),
        /// Show the values of a configuration and where each came from.
        Config(config::Config),
        /// Drill the protocol with thousands of simulated swarms and all kinds of faults, in virtual time.
        Drill(drill::Drill),
        /// Print what lets a shell complete commands, options and values.
        Completions(manual::Completions),
        /// Write the manual as pages for man.
        Man(manual::Man),
    }
}

#[cfg(feature = "network")]
commands! {
    enum Service {
        /// Run a relay on a public machine, for peers that cannot be reached directly.
        Relay(relay::Relay),
    }
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

/// The groups in which `--help` lists the commands.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Swarm",
        &[
            "demo", "init", "create", "join", "status", "watch", "invite", "revoke", "amend", "doctor", "relay",
            "config",
        ],
    ),
    ("Model", &["generate", "evaluate", "serve", "collect", "export", "import"]),
    ("Research", &["simulate", "experiment", "report", "prepare", "inspect", "transducer", "drill"]),
    ("Program", &["version", "completions", "man"]),
];

/// The command line, with its commands in groups.
fn command_line() -> clap::Command {
    let command = CommandLine::command();
    let line = |name: &&str| {
        let about = command.find_subcommand(name)?.get_about()?;
        Some(format!("  {name:<12}{about}\n"))
    };
    let groups = GROUPS
        .iter()
        .map(|(group, names)| format!("{group} commands:\n{}\n", names.iter().filter_map(line).collect::<String>()));
    let groups: String = groups.collect();
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

/// Runs the program: parses the command line, runs the command, reports its error.
pub fn main() -> ExitCode {
    #[cfg(feature = "learning")]
    crate::model::spin_briefly();
    #[cfg(feature = "network")]
    {
        process::panics::install();
        if let Err(error) = process::signals::install() {
            process::signals::tell(&format!("signals cannot be handled: {error}\n"));
        }
        // The hook has reported a panic.
        let status = std::panic::catch_unwind(run).unwrap_or(mistake::DEFECT);
        let _ = if crate::observe::progress::is_stuck() { Ok(()) } else { std::io::stdout().flush() };
        process::signals::end(status)
    }
    #[cfg(not(feature = "network"))]
    ExitCode::from(run())
}

/// Runs the command, reports its error, and returns the exit status.
fn run() -> u8 {
    let read = CommandLine::from_arg_matches(&command_line().get_matches());
    let CommandLine { globals, command } = read.unwrap_or_else(|error| error.exit());
    #[cfg(feature = "network")]
    process::signals::set_grace(globals.grace);
    match command.run(&globals) {
        Ok(()) => 0,
        Err(error) if output::reader_is_gone(&error) => 0,
        Err(error) => mistake::report(&error, globals.output()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed_and_each_command_is_in_one_group() {
        command_line().debug_assert();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        for command in CommandLine::command().get_subcommands() {
            assert_eq!(listed.iter().filter(|name| **name == command.get_name()).count(), 1, "{}", command.get_name());
        }
    }
}
