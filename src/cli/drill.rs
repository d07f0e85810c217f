//! `pathswarm drill`: simulated swarms in virtual time, by seed, until an invariant fails.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use serde_json::json;

use super::globals::Globals;
use super::mistake::{Mistake, OrMistake};
use super::output::Output;
use crate::names::BlobHash;
use crate::observe::{Progress, View};
use crate::simulator::counts::median;
use crate::simulator::drill::{Summary, drill, trace_hash};
use crate::simulator::{Failure, Scenario, Trace, run_traced};

/// `pathswarm drill`
#[derive(Args)]
pub struct Drill {
    /// The scenario, such as configs/drills/churn.toml; several are drilled one after the other.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    scenario: Vec<PathBuf>,
    /// Which seeds: the first, and the one after the last.
    #[arg(long, default_value = "0..100", value_name = "FROM..TO", value_parser = seeds)]
    seeds: Range<u64>,
    /// Number of peers, in place of the scenario's.
    #[arg(long)]
    peers: Option<usize>,
    /// Number of outer steps, in place of the scenario's.
    #[arg(long)]
    phases: Option<u64>,
    /// Print everything that happens in one seed.
    #[arg(long)]
    trace: bool,
    /// Print a hash of all events of the seeds, which changes only if the behaviour does.
    #[arg(long, conflicts_with = "trace")]
    trace_hash: bool,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a whole number"));
    let range = match text.split_once("..") {
        Some((from, to)) => number(from)?..number(to)?,
        None => return Err("write it like 0..1000".to_owned()),
    };
    if range.is_empty() { Err("the range holds no seed".to_owned()) } else { Ok(range) }
}

impl Drill {
    /// # Errors
    /// If a scenario is invalid, or a seed violates an invariant.
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        for file in &self.scenario {
            let scenario = Arc::new(self.read(file)?);
            if self.trace {
                self.trace(file, &scenario)?;
                continue;
            }
            let (progress, shown) = Progress::start(View::choose(globals.output().is_json()));
            let (name, all) = (file.display().to_string(), self.seeds.end - self.seeds.start);
            if self.trace_hash {
                let hash = trace_hash(&scenario, self.seeds.clone(), |done| progress.stage(&name, done, all));
                drop(shown);
                self.print_hash(globals.output(), &name, &hash.map_err(|failure| self.failed(file, &failure))?)?;
                continue;
            }
            let outcome = drill(&scenario, self.seeds.clone(), |done| progress.stage(&name, done, all));
            drop(shown);
            let summary = outcome.map_err(|failure| self.failed(file, &failure))?;
            print(globals.output(), &name, &scenario, &summary)?;
        }
        Ok(())
    }

    fn read(&self, file: &PathBuf) -> anyhow::Result<Scenario> {
        let name = file.display();
        let text = std::fs::read_to_string(file).map_err(|error| {
            Mistake::new(format!("{name}: {error}")).hint("name a file; configs/drills has scenarios")
        })?;
        let wrong = || "correct the file; configs/drills has working scenarios";
        let mut scenario = Scenario::from_toml(&text).or_mistake(wrong()).with_context(|| name.to_string())?;
        scenario.swarm.peers = self.peers.unwrap_or(scenario.swarm.peers);
        scenario.swarm.phases = self.phases.unwrap_or(scenario.swarm.phases);
        scenario.check().or_mistake("check --peers and --phases")?;
        Ok(scenario)
    }

    fn trace(&self, file: &std::path::Path, scenario: &Arc<Scenario>) -> anyhow::Result<()> {
        if self.seeds.end - self.seeds.start != 1 {
            let mistake =
                Mistake::new("--trace takes exactly one seed").hint("give a range of one seed, such as --seeds 17..18");
            return Err(mistake.into());
        }
        let out = std::io::BufWriter::new(std::io::stdout());
        let outcome = run_traced(scenario, self.seeds.start, Trace::Written(Box::new(out)));
        outcome.map(drop).map_err(|failure| self.failed(file, &failure))
    }

    /// In the form of configs/drills/traces.txt.
    fn print_hash(&self, output: Output, scenario: &str, hash: &BlobHash) -> anyhow::Result<()> {
        let Range { start, end } = self.seeds;
        output.text(&format!("{hash} {start}..{end} {scenario}"))?;
        output.json(&json!({ "event": "traced", "scenario": scenario, "from": start, "to": end, "hash": hash }))?;
        Ok(())
    }

    /// One line with the command that reproduces a failure.
    fn failed(&self, file: &std::path::Path, failure: &Failure) -> anyhow::Error {
        let seed = failure.seed;
        let peers = self.peers.map(|peers| format!(" --peers {peers}")).unwrap_or_default();
        let phases = self.phases.map(|phases| format!(" --phases {phases}")).unwrap_or_default();
        let file = file.display();
        let replay = format!("pathswarm drill --scenario {file} --seeds {seed}..{}{peers}{phases} --trace", seed + 1);
        anyhow::anyhow!("{failure}; reproduce it with: {replay}")
    }
}

fn print(output: Output, name: &str, scenario: &Scenario, summary: &Summary) -> anyhow::Result<()> {
    let Summary { seeds, counts, tally, slowest_ms, .. } = summary;
    let seconds = |ms: Option<u64>| ms.map_or("-".to_owned(), |ms| format!("{:.1} s", ms as f64 / 1000.0));
    let faults: Vec<String> = counts.faults.iter().map(|(name, times)| format!("{name} {times}")).collect();
    let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(", ") };
    let takeover = (median(&counts.takeovers_ms), counts.takeovers_ms.iter().max().copied());
    let recovery = counts.recoveries_ms.iter().max().copied();
    output.text(&format!("{name}: {seeds} seeds, no violation"))?;
    output.text(&format!("  {}", scenario.about))?;
    output.text(&format!("  faults            {faults}"))?;
    output.text(&format!(
        "  takeovers         {}, median {}, longest {}",
        counts.takeovers_ms.len(),
        seconds(takeover.0),
        seconds(takeover.1)
    ))?;
    output.text(&format!("  chains given up   {}, and {} rolled back", counts.switches, counts.went_back))?;
    if let (1.., left) = counts.wrong_updates {
        output.text(&format!("  wrong updates     {}, of which {left} remain", counts.wrong_updates.0))?;
    }
    if !counts.quarantined.is_empty() {
        let peers: Vec<String> = counts.quarantined.iter().map(|(name, times)| format!("{name} {times}")).collect();
        output.text(&format!("  quarantined       {}", peers.join(", ")))?;
    }
    output.text(&format!(
        "  contributions     {} counted (of all chains {} late), {} trained twice, {} uncounted at the end, {} too \
         old, {} of chains given up long before, {} lost with their peer",
        tally.counted, counts.late, tally.twice, tally.uncounted, tally.told, tally.given_up, tally.gone
    ))?;
    let (pace, loss) = (summary.pace(), summary.loss());
    output.text(&format!("  inner steps       {pace:.2} accepted a second, to a loss of {loss:.6}"))?;
    let (reached, reached_ms) = (summary.reached_ms.len(), median(&summary.reached_ms));
    if let Some(given) = scenario.swarm.given_loss {
        let after = seconds(reached_ms);
        output.text(&format!(
            "  a loss of {given:<8}reached by {reached} of {seeds} seeds, after {after} in the median"
        ))?;
    }
    output.text(&format!("  slowest recovery  {}", seconds(recovery)))?;
    let (control_bytes, phase_ms) = (counts.control_bytes_per_phase(), median(&counts.phases_ms));
    output.text(&format!("  a phase takes     {}, {control_bytes} control bytes a peer", seconds(phase_ms)))?;
    output.text(&format!("  peers train       {:.1}% of their time", counts.trained_percent()))?;
    output.text(&format!("  slowest seed      {} of virtual time", seconds(Some(*slowest_ms))))?;
    output.json(&json!({
        "event": "drilled", "scenario": name, "seeds": seeds, "events": counts.events, "faults": counts.faults,
        "takeovers": counts.takeovers_ms.len(), "takeover_median_ms": takeover.0, "takeover_longest_ms": takeover.1, "needless_elections": counts.needless,
        "chains_given_up": counts.switches, "went_back": counts.went_back, "quarantined": counts.quarantined,
        "wrong_updates": counts.wrong_updates.0, "wrong_updates_left": counts.wrong_updates.1, "late": counts.late, "unheld": counts.unheld, "recovery_longest_ms": recovery,
        "counted": tally.counted, "trained_twice": tally.twice, "uncounted": tally.uncounted, "too_old": tally.told, "of_chains_given_up": tally.given_up, "gone": tally.gone,
        "trained_percent": counts.trained_percent(), "phase_ms": phase_ms, "control_bytes_per_phase": control_bytes, "reached": reached, "reached_ms": reached_ms,
        "slowest_seed_ms": slowest_ms, "accepted_steps": summary.accepted_steps, "took_ms": summary.took_ms, "loss": loss,
    }))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_with_something_in_it() {
        assert_eq!(seeds("3..9"), Ok(3..9));
        for wrong in ["9", "9..3", "3..3", "a..b", ""] {
            assert!(seeds(wrong).is_err(), "{wrong}");
        }
    }
}
