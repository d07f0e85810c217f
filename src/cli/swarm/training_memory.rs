//! What people hear of a peer's memory before it trains.

use serde_json::json;

use crate::cli::config::memory::words;
use crate::config::{MachineConfig, RunConfig};
use crate::model::{device_name, open_device, unused_card};
use crate::observe::Progress;
use crate::sizes::in_words;
use crate::training::memory_plan::planned;

/// Prints what training will take of this machine, and whether a card is not used; the same for programs.
pub(super) fn tell_memory(progress: &Progress, run: &RunConfig, machine: &MachineConfig) -> serde_json::Value {
    if let Some(words) = unused_card(machine.first_device()) {
        progress.note(words);
    }
    let Some((text, memory)) = trainer_memory(run, machine) else { return serde_json::Value::Null };
    progress.note(text);
    memory
}

/// What a peer's trainer will take on this machine, in words and for programs. Where it does not fit, joining and creating
/// say so themselves.
fn trainer_memory(run: &RunConfig, machine: &MachineConfig) -> Option<(String, serde_json::Value)> {
    let machine = machine.first_trainer();
    let device = open_device(machine.device).ok()?;
    let plan = planned(run, &machine, device).ok()?;
    let (name, bytes) = (device_name(device), plan.bytes());
    let text = format!("trains {}, which takes about {} on {name}", words(&plan, run), in_words(bytes));
    let (micro_batch, checkpointing) = (plan.micro_batch, plan.checkpointing);
    Some((text, json!({ "device": name, "bytes": bytes, "micro_batch": micro_batch, "checkpointing": checkpointing })))
}
