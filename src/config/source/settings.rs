//! Settings of the command line and the environment, which override a file key by key.
//!
//! The variable of a key is `PATHSWARM_` and the key in capitals, with `_` for the dot: `PATHSWARM_TRAINING_PHASES`
//! sets `training.phases`.

use std::fmt;
use std::path::PathBuf;

use toml::{Table, Value};

use crate::config::machine::MachineConfig;
use crate::config::run::RunConfig;
use crate::config::source::schema::keys_of;

/// Variables that begin with `PATHSWARM_` but are flags of the command line, or the folder of the runs.
const FLAG_VARIABLES: [&str; 6] = [
    "PATHSWARM_FORMAT",
    "PATHSWARM_GRACE",
    "PATHSWARM_HOME",
    "PATHSWARM_LOG",
    "PATHSWARM_MACHINE",
    "PATHSWARM_WEB_TOKEN",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// A line of a file, counted from 1.
    File(PathBuf, usize),
    /// A variable of the environment.
    Environment(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SettingError {
    #[error("{flag}: {text:?} is not KEY=VALUE")]
    NoValue { flag: String, text: String },
    #[error("{origin}: there is no key {key:?}; keys begin with {}", all_keys().join(", "))]
    NoKey { origin: Origin, key: String },
}

/// One key and its value from a flag or a variable.
#[derive(Clone, Debug)]
pub struct Setting {
    pub(in crate::config) key: String,
    pub(in crate::config) value: Value,
    pub(in crate::config) origin: Origin,
}

impl Setting {
    /// From a flag. The text is read as a TOML value, or else as plain text.
    pub fn flag(flag: &str, key: &str, text: &str) -> Self {
        Self { key: key.to_owned(), value: value_of(text), origin: Origin::Flag(flag.to_owned()) }
    }

    /// `KEY=VALUE`, as in `--set training.phases=3`.
    pub fn parse(flag: &str, text: &str) -> Result<Self, SettingError> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => Ok(Self::flag(flag, key.trim(), value.trim())),
            _ => Err(SettingError::NoValue { flag: flag.to_owned(), text: text.to_owned() }),
        }
    }

    /// The key, and the flag or variable that sets it.
    pub fn what(&self) -> String {
        format!("{} {}", self.origin, self.key)
    }

    pub(in crate::config) fn section(&self) -> &str {
        self.key.split('.').next().unwrap_or_default()
    }
}

/// A text as a TOML value, or as a string, so that `cpu` needs no quotes.
pub(in crate::config) fn value_of(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>().ok().filter(|table| table.len() == 1);
    parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(text.to_owned()))
}

/// All settings outside files, weakest first.
#[derive(Clone, Debug, Default)]
pub struct Settings(pub(in crate::config) Vec<Setting>);

impl Settings {
    /// Takes the flags and the variables that begin with `PATHSWARM_`.
    pub fn new(
        environment: impl IntoIterator<Item = (String, String)>,
        flags: Vec<Setting>,
    ) -> Result<Self, SettingError> {
        let sections = all_keys();
        let mut settings = Vec::new();
        for (variable, text) in environment {
            let Some(name) = variable.strip_prefix("PATHSWARM_") else { continue };
            if !FLAG_VARIABLES.contains(&variable.as_str()) {
                let key = key_of_variable(name, &sections);
                settings.push(Setting { key, value: value_of(&text), origin: Origin::Environment(variable) });
            }
        }
        settings.sort_by(|a, b| a.key.cmp(&b.key));
        settings.extend(flags);
        match settings.iter().find(|setting| !sections.contains(&setting.section())) {
            Some(Setting { key, origin, .. }) => Err(SettingError::NoKey { origin: origin.clone(), key: key.clone() }),
            None => Ok(Self(settings)),
        }
    }
}

impl Settings {
    pub fn flag_of_run(&self) -> Option<&Setting> {
        let sections = keys_of::<RunConfig>();
        self.0.iter().find(|setting| matches!(setting.origin, Origin::Flag(_)) && sections.contains(&setting.section()))
    }
}

fn all_keys() -> Vec<&'static str> {
    [keys_of::<RunConfig>(), keys_of::<MachineConfig>()].concat()
}

/// `TRAINING_PHASES` becomes `training.phases`. Names that begin with no section stay as they are.
fn key_of_variable(name: &str, sections: &[&str]) -> String {
    let name = name.to_ascii_lowercase();
    if sections.contains(&name.as_str()) {
        return name;
    }
    let inside = |section: &&str| name.strip_prefix(*section)?.strip_prefix('_').map(|key| format!("{section}.{key}"));
    sections.iter().find_map(inside).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_names_a_key_with_an_underscore_for_the_dot() {
        let sections = all_keys();
        assert_eq!(key_of_variable("TRAINING_INNER_STEPS", &sections), "training.inner_steps");
        assert_eq!(key_of_variable("MICRO_BATCH_SEQUENCES", &sections), "micro_batch_sequences");
        assert_eq!(key_of_variable("NONSENSE", &sections), "nonsense");
    }

    #[test]
    fn a_value_needs_no_quotes_and_smuggles_no_second_key() {
        assert_eq!(value_of("3"), Value::Integer(3));
        assert_eq!(value_of("cpu"), Value::String("cpu".to_owned()));
        assert_eq!(value_of("1\nother = 2"), Value::String("1\nother = 2".to_owned()));
    }

    #[test]
    fn a_setting_that_sets_nothing_is_refused() {
        let variable = |name: &str| Settings::new([(name.to_owned(), "1".to_owned())], Vec::new());
        let error = variable("PATHSWARM_FASES").unwrap_err().to_string();
        assert!(error.starts_with("PATHSWARM_FASES: there is no key \"fases\"; keys begin with name, seed"), "{error}");
        assert!(variable("PATHSWARM_LOG").is_ok() && variable("HOME").is_ok());
        assert!(Setting::parse("--set", "training.phases").is_err());
        assert!(Setting::parse("--set", "=3").is_err());
    }
}
