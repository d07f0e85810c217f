//! `pathswarm config memory`: what training a path takes of this machine's memory, by part.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::cli::{Globals, Mistake, OrMistake, Output};
use crate::config::{Precision, RunConfig};
use crate::model::{device_name, open_device, precision_on};
use crate::training::memory_plan::measured::{Measured, measured};
use crate::training::memory_plan::{MemoryPlan, TooLarge, Workload, budget, choose, host_bytes};

/// What to do where nothing fits.
pub const TOO_LARGE: &str = "raise memory_limit_bytes if it is set, or the limit of the container; allow checkpointing and \
    smaller micro-batches if the machine's profile does not; or choose a smaller model.context or model";

/// Steps that are measured: the first allocates the moments' memory anew, the second reuses it.
const MEASURED_STEPS: u64 = 2;

/// `pathswarm config memory`
#[derive(Args)]
pub struct Memory {
    /// The run, such as configs/demo.toml.
    file: PathBuf,
    /// Train two steps on random text, and show what they really took.
    #[arg(long)]
    measure: bool,
}

impl Memory {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let run = globals.run(&self.file)?.value;
        let machine = globals.machine()?.value.first_trainer();
        let device = open_device(machine.device).or_mistake("or leave the choice to the program: device = \"auto\"")?;
        let precision = precision_on(device, machine.precision)?;
        let work = Workload::of(&run, (precision, machine.moments), device.is_cuda());
        let budget = budget(&run, &machine, device);
        let (plan, refused) = match choose(&work, &machine, budget) {
            Ok(plan) => (plan, None),
            Err(error) => (error.least, Some(error)),
        };
        let measured = match (self.measure, &refused) {
            (true, None) => Some(measured(&run, &machine, device, MEASURED_STEPS)?),
            _ => None,
        };
        let device = device_name(device);
        let shown =
            Shown { run: &run, plan, precision, device, budget, host: host_bytes(&run, work.trained), measured };
        shown.print(globals.output(), &self.file, refused)
    }
}

/// A plan, and what it is compared with.
struct Shown<'a> {
    run: &'a RunConfig,
    plan: MemoryPlan,
    precision: Precision,
    device: String,
    /// Bytes that a step may take, if they are known.
    budget: Option<u64>,
    /// Bytes of the host besides the trainer and the text.
    host: u64,
    measured: Option<Measured>,
}

impl Shown<'_> {
    fn print(&self, output: Output, file: &Path, refused: Option<TooLarge>) -> anyhow::Result<()> {
        let Self { plan, device, budget, host, measured, .. } = self;
        let precision = match self.precision {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        };
        output.text(&format!("{}: {} on {device} in {precision}", file.display(), words(plan, self.run)))?;
        let line = |what: &str, bytes: u64| output.text(&format!("  {what:13}  {:>10.1} MB", bytes as f64 / 1e6));
        for (part, bytes) in plan.parts() {
            line(part, bytes)?;
        }
        line("in all", plan.bytes())?;
        let taken = measured.and_then(|measured| measured.bytes);
        taken.map_or(Ok(()), |bytes| line("measured", bytes))?;
        budget.map_or(Ok(()), |bytes| line("there are", bytes))?;
        let note = "of the host besides, for states of modules; text comes on top";
        output.text(&format!("  {:13}  {:>10.1} MB {note}", "a peer holds", *host as f64 / 1e6))?;
        let parts: serde_json::Map<_, _> =
            plan.parts().into_iter().map(|(part, bytes)| (part.to_owned(), bytes.into())).collect();
        output.json(&json!({
            "event": "memory", "device": device, "precision": precision, "micro_batch": plan.micro_batch,
            "checkpointing": plan.checkpointing, "parts": parts, "bytes": plan.bytes(), "budget_bytes": budget,
            "fits": refused.is_none(), "host_bytes": host, "measured_bytes": taken, "step_s": measured.map(|measured| measured.step_s),
        }))?;
        match refused {
            Some(error) => Err(Mistake::new(format!("{}: {error}", file.display())).hint(TOO_LARGE).into()),
            None => Ok(()),
        }
    }
}

/// How a step is computed by a plan, in words.
pub fn words(plan: &MemoryPlan, run: &RunConfig) -> String {
    let (at_once, batch) = (plan.micro_batch, run.training.batch_sequences);
    let with = if plan.checkpointing { "with" } else { "without" };
    format!("{at_once} of {batch} sequences at once, {with} checkpointing")
}
