//! `pathswarm report`: runs and experiments as one file for people, which opens without a network.
//!
//! [`Subjects::read`] reads folders: `recorded` the lines of `metrics.jsonl`, `faults` the log, `reads` the text of each
//! path. `sections` makes the parts of the page, one a file; `html` is the only place where text becomes markup. Images
//! are drawn by [`inspect::plots`](crate::inspect::plots).

mod faults;
mod folder;
pub(crate) mod html;
mod reads;
mod recorded;
mod sections;
#[cfg(test)]
mod tests;
mod words;

use crate::report::folder::{Kind, Run, name_of};
pub use crate::report::folder::{ReportError, Subjects};
use crate::report::html::{heading, page, section};
use crate::report::sections::{
    comparison, curves, experiment, faults as fault_section, identity, routing, summary, traffic,
};

impl Subjects {
    /// The whole page, as HTML.
    ///
    /// # Errors
    /// If an image cannot be drawn.
    pub fn page(&self) -> anyhow::Result<String> {
        let names = names(&self.runs);
        let mut body = String::new();
        if !self.runs.is_empty() {
            body += &self.sections_of_runs(&names)?;
        }
        for (number, tried) in self.experiments.iter().enumerate() {
            let title = format!("Arms of {}", tried.title);
            body += &section(&format!("experiment-{number}"), &title, &experiment::all(tried, number)?);
        }
        let titles: Vec<String> =
            names.iter().cloned().chain(self.experiments.iter().map(|tried| tried.title.clone())).collect();
        let under: String = self.runs.iter().zip(&names).map(|(run, name)| under(run, name)).collect();
        Ok(page(&titles.join(", "), &under, &body))
    }

    fn sections_of_runs(&self, names: &[String]) -> anyhow::Result<String> {
        let runs = &self.runs;
        // The part of each run, under its name where there are several.
        let each = |part: fn(&Run) -> String| -> String {
            let named = |(run, name): (&Run, &String)| match part(run) {
                part if part.is_empty() || runs.len() == 1 => part,
                part => heading(name) + &part,
            };
            runs.iter().zip(names).map(named).collect()
        };
        let mut body =
            section("what", "What was trained, and by whom", &each(|run| summary::what(run) + &summary::who(run)));
        body += &section("curves", "How it went", &curves::all(runs, names)?);
        body += &section("comparison", "Scores, and a dense network beside it", &comparison::all(runs, names)?);
        body += &section("routing", "What each path reads", &each(routing::of_run));
        body += &section("samples", "What it writes", &each(routing::samples));
        body += &section("bytes", "Bytes", &(traffic::curves(runs, names)? + &each(traffic::of_run)));
        body += &section("faults", "Faults, and what became of them", &each(fault_section::of_run));
        body += &section("settings", "Settings", &each(identity::settings));
        body += &section("hashes", "Hashes", &each(identity::hashes));
        body += &section("join", "Join it, or use it", &each(identity::join));
        Ok(body)
    }
}

/// What stands under the title: where the run was found, and its numbers.
fn under(run: &Run, name: &str) -> String {
    let kind = match run.kind {
        Kind::Peer => "a peer's folder",
        Kind::Simulated => "a swarm simulated on one machine",
        Kind::Collected => "a collected run",
    };
    let line = html::remark(&format!("{name}: {kind}, run {}", words::key(&run.id.to_string())));
    line + &summary::at_a_glance(run)
}

/// Names of runs that tell them apart: those of their configurations, and where these are alike, of their folders, too.
fn names(runs: &[Run]) -> Vec<String> {
    let name = |run: &Run| run.manifest.config.name.clone();
    let alike = |run: &Run| runs.iter().filter(|other| name(other) == name(run)).count() > 1;
    let shown = |run: &Run| if alike(run) { format!("{} ({})", name(run), name_of(&run.folder)) } else { name(run) };
    runs.iter().map(shown).collect()
}
