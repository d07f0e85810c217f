//! The flags that every command takes.

use std::path::PathBuf;

use clap::Args;

use super::data_folder::data_folder;
use super::mistake::Mistake;
use super::output::{Format, Output};
use crate::config::{MachineConfig, Resolved, RunConfig, Setting, Settings};
use crate::observe::logging::LogFilter;

/// The flags that every command takes.
#[derive(Args, Clone, Debug)]
pub struct Globals {
    /// Print for people or for programs.
    #[arg(long, global = true, env = "PATHSWARM_FORMAT", value_enum, default_value = "text")]
    pub format: Format,
    /// How much to log to the run's folder: error, warn, info, debug, trace, or filters as in RUST_LOG.
    #[arg(long, global = true, env = "PATHSWARM_LOG", value_name = "LEVEL")]
    pub log: Option<LogFilter>,
    /// Set a key of the run or of the machine, such as training.phases=3 or device=cpu.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Seconds that stopping in order may take after Ctrl-C, TERM or HUP; then the process ends as it is.
    #[arg(long, global = true, env = "PATHSWARM_GRACE", value_name = "SECONDS", default_value_t = 10)]
    pub grace: u32,
    /// The profile of this machine, such as peers/laptop-cpu.toml.
    #[arg(long, global = true, env = "PATHSWARM_MACHINE", value_name = "FILE")]
    pub machine: Option<PathBuf>,
}

impl Globals {
    pub fn output(&self) -> Output {
        Output::new(self.format)
    }

    /// The log filter: `--log` overrides `RUST_LOG`.
    pub fn log_filter(&self) -> Result<LogFilter, Mistake> {
        if let Some(filter) = &self.log {
            return Ok(filter.clone());
        }
        let found = LogFilter::from_environment()
            .map_err(|error| Mistake::new(format!("RUST_LOG: {error}")).hint("correct RUST_LOG, or give --log info"))?;
        Ok(found.unwrap_or_default())
    }

    /// Settings of the environment and the flags; `more` are the command's own flags, which override `--set`.
    pub fn settings(&self, more: Vec<Setting>) -> Result<Settings, Mistake> {
        let set: Result<Vec<Setting>, _> = self.set.iter().map(|text| Setting::parse("--set", text)).collect();
        let environment =
            std::env::vars_os().filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
        let all = |mut flags: Vec<Setting>| {
            flags.extend(more);
            Settings::new(environment, flags)
        };
        set.and_then(all).map_err(|error| {
            Mistake::new(error.to_string()).hint("write it like --set training.phases=3 or PATHSWARM_DEVICE=cpu")
        })
    }

    /// This machine's profile.
    pub fn machine(&self) -> Result<Resolved<MachineConfig>, Mistake> {
        self.machine_with(Vec::new())
    }

    /// The same with a command's own flags, which override `--set`.
    pub fn machine_with(&self, more: Vec<Setting>) -> Result<Resolved<MachineConfig>, Mistake> {
        let mut resolved = self.settings(more)?.machine(self.machine.as_deref())?;
        if resolved.value.runs.as_os_str().is_empty() {
            resolved.value.runs = data_folder().join("runs");
        }
        Ok(resolved)
    }

    /// The same for a command on an existing run, whose configuration is fixed.
    pub fn machine_only(&self) -> Result<MachineConfig, Mistake> {
        if let Some(setting) = self.settings(Vec::new())?.flag_of_run() {
            let message = format!("{}: the run exists, and its configuration is fixed", setting.what());
            return Err(Mistake::new(message).hint("set only keys of the machine here, such as threads or device"));
        }
        Ok(self.machine()?.value)
    }

    /// A run's configuration.
    pub fn run(&self, file: &std::path::Path) -> Result<Resolved<RunConfig>, Mistake> {
        Ok(self.settings(Vec::new())?.run(file)?)
    }
}
