//! `pathswarm config`: the values of a configuration, their origins, what each key means, parameter counts, and memory.

#[cfg(all(feature = "learning", feature = "network"))]
pub(super) mod memory;
mod reference;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use super::globals::Globals;
use super::mistake::Mistake;
use super::output::Output;
use crate::config::{Entry, LevelConfig, Origin, RunConfig, level_parameters};
use crate::grid::{Grid, Sharing};

/// Longer values push their origin to the right.
const WIDEST_VALUE: usize = 40;

/// `pathswarm config`
#[derive(Args)]
pub struct Config {
    #[command(subcommand)]
    question: Question,
}

#[derive(Subcommand)]
enum Question {
    /// Show every value of a run and of this machine, and where it came from.
    Show {
        /// The run, such as configs/demo.toml; without it only the machine is shown.
        file: Option<PathBuf>,
    },
    /// Explain keys: which values they take, their defaults, and what they mean.
    Explain {
        /// A key such as training.clip_norm, or a table such as training; without it, all keys are listed.
        key: Option<String>,
    },
    /// Show what training a path takes of this machine's memory.
    #[cfg(all(feature = "learning", feature = "network"))]
    Memory(memory::Memory),
    /// Show the parameters per module, per path and in all.
    Parameters {
        /// The run, such as configs/demo.toml.
        file: PathBuf,
    },
}

impl Config {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        match self.question {
            Question::Show { file } => show(globals, file.as_deref()),
            Question::Explain { key } => explain(globals.output(), key.as_deref()),
            #[cfg(all(feature = "learning", feature = "network"))]
            Question::Memory(memory) => memory.run(globals),
            Question::Parameters { file } => {
                let run = globals.run(&file)?.value;
                let grid = run.grid()?;
                Parameters { file: &file, run: &run, grid: &grid }.print(globals.output())
            }
        }
    }
}

fn show(globals: &Globals, file: Option<&Path>) -> anyhow::Result<()> {
    let machine = globals.machine()?.entries();
    let mut run = file.map(|file| globals.run(file)).transpose()?;
    if let Some(run) = &mut run {
        // Its default depends on other keys.
        run.value.trainers_per_path = Some(run.value.trainers());
    }
    let run = run.map(|run| run.entries());
    let sections = [("run", run.unwrap_or_default()), ("machine", machine)];
    let width = |part: fn(&Entry) -> &str| {
        sections.iter().flat_map(|(_, entries)| entries).map(|entry| part(entry).chars().count()).max().unwrap_or(0)
    };
    let (keys, values) = (width(|entry| &entry.key), width(|entry| &entry.text).min(WIDEST_VALUE));
    let output = globals.output();
    for (section, entries) in &sections {
        for Entry { key, text, origin } in entries {
            output.text(&format!("{key:keys$}  {text:values$}  {origin}"))?;
        }
        for entry in entries {
            output.json(&json!({
                "event": "value", "of": section, "key": entry.key, "value": entry.value(),
                "origin": kind(&entry.origin), "source": entry.origin.to_string(),
            }))?;
        }
        if *section == "run" && !entries.is_empty() {
            show_unset(output, entries, keys)?;
        }
    }
    Ok(())
}

/// Shows the keys of a run that are not set and whose default is no single value: in the words of the reference.
fn show_unset(output: Output, entries: &[Entry], widest: usize) -> anyhow::Result<()> {
    let has = |name: &str| entries.iter().any(|entry| entry.key == name || entry.key.starts_with(&format!("{name}.")));
    let tables = ["text.", "model.", "routing.", "training.", "outer."];
    let in_table =
        |name: &str| tables.iter().any(|table| name.strip_prefix(table).is_some_and(|key| !key.contains('.')));
    for reference::Key { name, default, .. } in reference::keys().iter().filter(|key| in_table(&key.name)) {
        let Some(default) = default.as_ref().filter(|_| !has(name)) else { continue };
        let value = serde_json::from_str::<serde_json::Value>(default.trim_matches('`')).ok();
        let shown = value.as_ref().map_or_else(|| format!("({default})"), ToString::to_string);
        output.text(&format!("{name:widest$}  {shown}  default"))?;
        output.json(&json!({
            "event": "value", "of": "run", "key": name, "value": value, "origin": "default", "source": default,
        }))?;
    }
    Ok(())
}

/// Prints the keys of this name, or in this table.
fn explain(output: Output, wanted: Option<&str>) -> anyhow::Result<()> {
    let keys = reference::keys();
    let is_wanted = |name: &str| {
        wanted
            .is_none_or(|wanted| name.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    };
    let found: Vec<_> = keys.iter().filter(|key| is_wanted(&key.name)).collect();
    if let (Some(wanted), true) = (wanted, found.is_empty()) {
        return Err(unknown(wanted, &keys).into());
    }
    let widest = found.iter().map(|key| key.name.len()).max().unwrap_or(0);
    for key in found {
        let default = key.default.as_deref().unwrap_or(if key.value.is_some() { "must be given" } else { "none" });
        match wanted {
            None => output.text(&format!("{:widest$}  {default}", key.name))?,
            Some(_) => {
                output.text(&key.name)?;
                let lines =
                    [("value", key.value.as_deref()), ("default", Some(default)), ("meaning", Some(&key.meaning))];
                for (what, text) in lines {
                    text.map(|text| output.text(&format!("  {what:7}  {text}"))).transpose()?;
                }
            }
        }
        let of = if key.of_machine { "machine" } else { "run" };
        output.json(&json!({
            "event": "key", "of": of, "key": key.name, "value": key.value, "default": key.default, "meaning": key.meaning,
        }))?;
    }
    Ok(())
}

/// A key that does not exist, with those that are like it.
fn unknown(wanted: &str, keys: &[reference::Key]) -> Mistake {
    let last = wanted.rsplit('.').next().unwrap_or(wanted);
    let like: Vec<&str> = keys.iter().map(|key| key.name.as_str()).filter(|name| name.contains(last)).take(5).collect();
    let mistake = Mistake::new(format!("there is no key {wanted:?}"));
    match like.is_empty() {
        true => mistake.hint("pathswarm config explain lists all keys"),
        false => mistake.hint(format!("perhaps {}; pathswarm config explain lists all keys", like.join(", "))),
    }
}

fn kind(origin: &Origin) -> &'static str {
    match origin {
        Origin::Default => "default",
        Origin::File(..) => "file",
        Origin::Environment(_) => "environment",
        Origin::Flag(_) => "flag",
    }
}

/// The parameters of a run and of its modules.
struct Parameters<'a> {
    file: &'a Path,
    run: &'a RunConfig,
    grid: &'a Grid,
}

impl Parameters<'_> {
    fn print(&self, output: Output) -> anyhow::Result<()> {
        let per_module: Vec<u64> =
            self.run.levels.iter().map(|level| level_parameters(&self.run.model, level) as u64).collect();
        let modules: Vec<u64> = (0..self.grid.levels()).map(|level| u64::from(self.grid.experts(level))).collect();
        let path: u64 = per_module.iter().sum();
        let all: u64 = per_module.iter().zip(&modules).map(|(each, count)| each * count).sum();

        let (paths, levels) = (self.grid.path_count(), self.run.levels.len());
        let at_a_time = self.run.sample.map_or(paths, |sample| sample.paths);
        let sampled = if at_a_time < paths { format!(", {at_a_time} of them at a time") } else { String::new() };
        output.text(&format!("{}: paths: {paths}{sampled}, levels: {levels}", self.file.display()))?;
        output.text(&format!("{:5}  {:>7}  {:>13}  {:11}  parts", "level", "modules", "each", "sharing"))?;
        for (index, level) in self.run.levels.iter().enumerate() {
            let (count, each) = (modules[index], grouped(per_module[index]));
            let (sharing, parts) = (sharing(level), level.parts.join(", "));
            output.text(&format!("{index:5}  {count:7}  {each:>13}  {sharing:11}  {parts}"))?;
        }
        for (purpose, count) in self.purposes() {
            output.text(&format!("  {purpose:12}  {:>13}  of a path", grouped(count)))?;
        }
        let line = |what: &str, count: u64| {
            let megabytes = count as f64 * 4.0 / 1e6;
            output.text(&format!("{what:14}  {:>13}  {megabytes:.1} MB as 32-bit floats", grouped(count)))
        };
        line("a path", path)?;
        line("in all", all)?;
        let frozen = self.run.frozen().map(|frozen| level_parameters(&self.run.model, &frozen) as u64);
        if let Some(frozen) = frozen {
            line("frozen", frozen)?;
        }
        let active = self.run.model.active_parameters();
        if let Some((with_reuse, once)) = active {
            line("a token meets", with_reuse)?;
            line("each once", once)?;
        }

        let levels: Vec<serde_json::Value> = self
            .run
            .levels
            .iter()
            .zip(modules.iter().zip(&per_module))
            .map(|(level, (modules, each))| {
                json!({
                    "parts": level.parts, "sharing": level.sharing, "modules": modules, "parameters_per_module": each,
                })
            })
            .collect();
        output.json(&json!({
            "event": "parameters", "paths": paths, "paths_at_a_time": at_a_time, "levels": levels, "per_path": path, "in_all": all,
            "frozen": frozen,
            "active": active.map(|(with_reuse, once)| json!({ "with_reuse": with_reuse, "each_once": once })),
            "purposes": self.purposes().into_iter().map(|(purpose, count)| (purpose.to_owned(), count.into()))
                .collect::<serde_json::Map<_, _>>(),
        }))?;
        Ok(())
    }

    /// Parameters of a path by purpose, in the order of computation.
    fn purposes(&self) -> Vec<(&'static str, u64)> {
        let mut purposes: Vec<(&'static str, u64)> = Vec::new();
        for tensor in self.run.model.parts().into_iter().flat_map(|part| self.run.model.tensors(part)) {
            let count = tensor.count() as u64;
            match purposes.iter_mut().find(|(known, _)| *known == tensor.purpose()) {
                Some((_, sum)) => *sum += count,
                None => purposes.push((tensor.purpose(), count)),
            }
        }
        purposes
    }
}

fn sharing(level: &LevelConfig) -> String {
    match level.sharing {
        Sharing::Shared => "shared".to_owned(),
        Sharing::Experts(experts) => format!("experts = {experts}"),
        Sharing::Path => "path".to_owned(),
    }
}

/// A count with a comma before every third digit from the right.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn counts_are_grouped_by_threes() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(149_804_928), "149,804,928");
    }
}
