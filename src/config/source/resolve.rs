//! Merges a file, the environment and flags into one checked value that knows the origin of each part.
//!
//! Flags override the environment, which overrides the file, which overrides the defaults.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::config::machine::MachineConfig;
use crate::config::run::{RunConfig, RunConfigError};
use crate::config::source::key_positions::Places;
use crate::config::source::schema::keys_of;
use crate::config::source::settings::{Origin, Setting, Settings, value_of};

/// Longer files are refused.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Each message names the file, variable or flag, and the key.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("{}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    /// A syntax error, an unknown key, a wrong type, or a value out of range.
    #[error("{place}: {message}")]
    Refused { place: String, message: String },
}

impl ResolveError {
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "give the path of a TOML file; pathswarm init NAME writes one for a run",
            Self::Refused { .. } => "correct it there; pathswarm config explain KEY says which values a key takes",
        }
    }
}

impl Settings {
    /// Reads a run's file and applies the settings.
    pub fn run(&self, file: &Path) -> Result<Resolved<RunConfig>, ResolveError> {
        self.resolve(Some(file), |run: &RunConfig| {
            run.check().map_err(|error| (key_of_error(&error), error.to_string()))
        })
    }

    /// Reads a machine's profile, if any, and applies the settings.
    pub fn machine(&self, file: Option<&Path>) -> Result<Resolved<MachineConfig>, ResolveError> {
        let resolved: Resolved<MachineConfig> = self.resolve(file, |_| Ok(()))?;
        let given = |key| resolved.source.origin(key) != Origin::Default;
        if given("device") && resolved.value.devices.is_some() {
            return Err(ResolveError::Refused {
                place: resolved.source.place("devices"),
                message: format!(
                    "devices: {} gives `device` as well: give one of them",
                    resolved.source.place("device")
                ),
            });
        }
        Ok(resolved)
    }

    fn resolve<T: DeserializeOwned + Serialize>(
        &self,
        file: Option<&Path>,
        check: impl Fn(&T) -> Result<(), (String, String)>,
    ) -> Result<Resolved<T>, ResolveError> {
        let sections = keys_of::<T>();
        let settings = self.0.iter().filter(|setting| sections.contains(&setting.section())).cloned().collect();
        let text = file.map(read).transpose()?.unwrap_or_default();
        let source = Source { file: file.map(Path::to_owned), places: Places::of(&text), settings };
        let table: Table = text.parse().map_err(|error| source.refuse(&error))?;
        let value = source.value(&text, &table)?;
        match check(&value) {
            Ok(()) => Ok(Resolved { value, source }),
            Err((key, message)) => Err(ResolveError::Refused { place: source.place(&key), message }),
        }
    }
}

/// The key that a check complains about, if it names one.
fn key_of_error(error: &RunConfigError) -> String {
    match error {
        RunConfigError::Key(error) => error.key.clone(),
        RunConfigError::Levels(error) => {
            error.level().map_or_else(|| "levels".to_owned(), |level| format!("levels[{level}].parts"))
        }
        RunConfigError::Grid(_) => "levels".to_owned(),
        RunConfigError::Sample(_) => "sample.paths".to_owned(),
        RunConfigError::Syntax(_) => String::new(),
    }
}

fn read(path: &Path) -> Result<String, ResolveError> {
    let unreadable = |reason: String| ResolveError::Unreadable { path: path.to_owned(), reason };
    let described = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !described.is_file() {
        return Err(unreadable("is not a file".to_owned()));
    }
    if described.len() > MAX_FILE_BYTES {
        return Err(unreadable(format!("{} bytes are too many for a configuration", described.len())));
    }
    std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))
}

/// The inputs of a configuration.
#[derive(Debug)]
struct Source {
    file: Option<PathBuf>,
    places: Places,
    settings: Vec<Setting>,
}

impl Source {
    /// Applies the settings to the file's table. On failure, tells whether the file or a setting is wrong.
    fn value<T: DeserializeOwned>(&self, text: &str, file: &Table) -> Result<T, ResolveError> {
        let error = match over(file, &self.settings).try_into() {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        if let Err(error) = toml::from_str::<T>(text) {
            return Err(self.refuse(&error));
        }
        let breaks = |count: &usize| over(file, &self.settings[..*count]).try_into::<T>().is_err();
        let culprit = (1..=self.settings.len()).find(breaks).map(|count| &self.settings[count - 1]);
        Err(ResolveError::Refused {
            place: culprit.map_or_else(|| self.place(""), |setting| setting.origin.to_string()),
            message: format!("{}: {}", culprit.map_or("", |setting| &setting.key), plain(error.message())),
        })
    }

    /// One line about what TOML or serde report of the file.
    fn refuse(&self, error: &toml::de::Error) -> ResolveError {
        let file = self.file_name();
        let Some(span) = error.span() else {
            return ResolveError::Refused { place: file, message: plain(error.message()) };
        };
        let key = self.places.key_at(span.start).map(|key| format!("{key}: ")).unwrap_or_default();
        ResolveError::Refused {
            place: format!("{file}:{}", self.places.line_at(span.start)),
            message: format!("{key}{}", plain(error.message())),
        }
    }

    fn file_name(&self) -> String {
        self.file.as_ref().map_or_else(|| "configuration".to_owned(), |path| path.display().to_string())
    }

    /// Origin of a key: the strongest setting of it or of a table around it, else the file, else the default.
    fn origin(&self, key: &str) -> Origin {
        let sets = |setting: &&Setting| {
            key.strip_prefix(&setting.key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        if let Some(setting) = self.settings.iter().rev().find(sets) {
            return setting.origin.clone();
        }
        match (&self.file, self.places.line_of(key)) {
            (Some(file), Some(line)) => Origin::File(file.clone(), line),
            _ => Origin::Default,
        }
    }

    /// As [`Source::origin`], for a message. Of a table, a setting inside it is the place. A default is attributed to the file.
    fn place(&self, key: &str) -> String {
        let inside = |setting: &&Setting| setting.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
        if let Some(setting) = self.settings.iter().rev().find(inside) {
            return setting.origin.to_string();
        }
        let first_inside = format!("{key}[0]");
        match (self.origin(key), self.places.line_of(&first_inside)) {
            (Origin::Default, Some(line)) => format!("{}:{line}", self.file_name()),
            (Origin::Default, None) => self.file_name(),
            (origin, _) => origin.to_string(),
        }
    }
}

/// What serde reports, without the names that Rust has for types.
fn plain(message: &str) -> String {
    let kinds = [
        ("expected u64", "expected a whole number"),
        ("expected u32", "expected a whole number"),
        ("expected u16", "expected a whole number"),
        ("expected usize", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected f32", "expected a number"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected a table"),
    ];
    kinds.into_iter().fold(one_line(message), |message, (rust, plain)| message.replace(rust, plain))
}

/// Applies settings to a table; later ones override earlier ones.
fn over(file: &Table, settings: &[Setting]) -> Table {
    let mut whole = file.clone();
    for Setting { key, value, .. } in settings {
        let mut table = &mut whole;
        let mut names = key.split('.').peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                table.insert(name.to_owned(), value.clone());
                break;
            }
            let inner = table.entry(name).or_insert_with(|| Value::Table(Table::new()));
            if !inner.is_table() {
                *inner = Value::Table(Table::new());
            }
            let Value::Table(inner) = inner else { break };
            table = inner;
        }
    }
    whole
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A checked configuration with the origin of each value.
#[derive(Debug)]
pub struct Resolved<T> {
    pub value: T,
    source: Source,
}

/// One value of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Dotted, such as `training.phases` or `levels[1].parts`.
    pub key: String,
    /// The value as TOML writes it.
    pub text: String,
    pub origin: Origin,
}

impl Entry {
    pub fn value(&self) -> Value {
        value_of(&self.text)
    }
}

impl<T: Serialize> Resolved<T> {
    /// Every value, in the order of the type's fields.
    pub fn entries(&self) -> Vec<Entry> {
        let text = toml::to_string(&self.value).expect("what was read from TOML can be written as TOML");
        let entry = |(key, value): (&str, Range<usize>)| Entry {
            key: key.to_owned(),
            text: text[value].to_owned(),
            origin: self.source.origin(key),
        };
        Places::of(&text).leaves().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"
name = "small"
[model]
blocks = 1
width = 16
heads = 2
vocabulary = 300
context = 64
[[levels]]
parts = ["embedding", "block.0", "final-norm", "head"]
sharing = { experts = 2 }
[training]
batch_sequences = 2
inner_steps = 5
phases = 3
ancestor_steps = 4
learning_rate = 1e-3
"#;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        file
    }

    fn settings(environment: &[(&str, &str)], flags: &[&str]) -> Settings {
        let environment = environment.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let flags = flags.iter().map(|text| Setting::parse("--set", text).unwrap()).collect();
        Settings::new(environment, flags).unwrap()
    }

    #[test]
    fn a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default() {
        let file = file(RUN);
        let variables = [("PATHSWARM_TRAINING_PHASES", "7"), ("PATHSWARM_TRAINING_INNER_STEPS", "8")];
        let run = settings(&variables, &["training.phases=9"]).run(file.path()).unwrap();
        assert_eq!((run.value.training.phases, run.value.training.inner_steps), (9, 8));
        let entries = run.entries();
        let origin = |key: &str| entries.iter().find(|entry| entry.key == key).unwrap().origin.to_string();
        assert_eq!(origin("training.phases"), "--set");
        assert_eq!(origin("training.inner_steps"), "PATHSWARM_TRAINING_INNER_STEPS");
        assert_eq!(origin("levels[0].sharing.experts"), format!("{}:11", file.path().display()));
        assert_eq!(origin("outer.learning_rate"), "default");
    }

    #[test]
    fn values_are_shown_as_they_are_written() {
        let run = settings(&[], &["outer.learning_rate=0.7"]).run(file(RUN).path()).unwrap();
        let entry = |key: &str| run.entries().into_iter().find(|entry| entry.key == key).unwrap();
        assert_eq!(entry("outer.learning_rate").text, "0.7");
        assert_eq!(entry("name").value(), Value::String("small".to_owned()));
        assert_eq!(run.entries()[0].key, "name");
        assert_eq!(entry("outer.audit_share").text, "1.0", "defaults, too");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let wrong = |from: &str, to: &str| {
            let file = file(&RUN.replace(from, to));
            let error = Settings::default().run(file.path()).unwrap_err().to_string();
            error.strip_prefix(&file.path().display().to_string()).unwrap().to_owned()
        };
        assert!(wrong("phases = 3", "fases = 3").starts_with(":15: training.fases: unknown field `fases`, expected"));
        assert!(wrong("phases = 3\n", "").starts_with(":12: training: missing field `phases`"));
        assert!(wrong("phases = 3", "phases = \"many\"").starts_with(":15: training.phases: invalid type"));
        assert!(wrong("phases = 3", "phases = 0").starts_with(":15: training.phases = 0: 1 to"));
        assert!(wrong("phases = 3", "phases 3").starts_with(":15: "));
        assert!(wrong("width = 16", "width = 15").starts_with(":6: model.heads = 2: must divide model.width = 15"));
        assert!(wrong(", \"head\"", "").starts_with(":9: levels: no level lists head"));
        assert!(wrong("context = 64", "context = 32").starts_with(": routing.prefix_tokens = 32: at least 1"));
    }

    #[test]
    fn a_wrong_setting_is_named_and_not_the_file() {
        let file = file(RUN);
        let error = |settings: Settings| settings.run(file.path()).unwrap_err().to_string();
        let fine = ("PATHSWARM_SEED", "4");
        let found = error(settings(&[fine, ("PATHSWARM_TRAINING_PHASES", "many")], &[]));
        assert!(found.starts_with("PATHSWARM_TRAINING_PHASES: training.phases: invalid type"), "{found}");
        let found = error(settings(&[fine], &["training.fases=3"]));
        assert!(found.starts_with("--set: training.fases: unknown field `fases`"), "{found}");
        let found = error(settings(&[fine], &["training.phases=0"]));
        assert!(found.starts_with("--set: training.phases = 0"), "{found}");
    }

    #[test]
    fn a_machine_needs_no_file() {
        let machine = settings(&[("PATHSWARM_DEVICE", "cpu")], &["training.phases=3"]).machine(None).unwrap();
        assert_eq!(machine.value.device, crate::config::DeviceChoice::Cpu);
        let origins: Vec<String> = machine.entries().iter().map(|entry| entry.origin.to_string()).collect();
        assert_eq!(origins[..2], ["PATHSWARM_DEVICE", "default"]);
    }

    #[test]
    fn one_device_or_several_are_given_and_not_both() {
        let machine = |text: &str, flags: &[&str]| {
            let file = file(text);
            let place = file.path().display().to_string();
            let read = settings(&[], flags).machine(Some(file.path()));
            read.map(|it| it.value).map_err(|error| error.to_string().replace(&place, "FILE"))
        };
        let several = machine("devices = [\"cpu\", \"cpu\"]", &[]).unwrap();
        assert_eq!(several.of_trainers(2).len(), 2);
        assert_eq!(machine("", &["devices=[\"cuda:0\", \"cuda:1\"]"]).unwrap().of_trainers(2).len(), 2);
        let both = machine("device = \"cpu\"\ndevices = [\"cpu\"]", &[]).unwrap_err();
        assert_eq!(both, "FILE:2: devices: FILE:1 gives `device` as well: give one of them");
        let both = machine("devices = [\"cpu\"]", &["device=cuda"]).unwrap_err();
        assert_eq!(both, "FILE:1: devices: --set gives `device` as well: give one of them");
        assert!(machine("devices = []", &[]).unwrap_err().starts_with("FILE:1: devices: names no device"));
        assert!(machine("devices = [\"mps\", \"mps\"]", &[]).unwrap_err().contains("\"mps\" twice"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = Settings::default().machine(Some(Path::new("no/such.toml"))).unwrap_err();
        assert!(error.to_string().starts_with("no/such.toml: No such file"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let error = Settings::default().machine(Some(folder.path())).unwrap_err().to_string();
        assert!(error.ends_with("is not a file"), "{error}");
    }
}
