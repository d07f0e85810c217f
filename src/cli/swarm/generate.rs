//! `pathswarm generate`: a prompt, continued by the path that it is routed to.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::mistake::Mistake;
use super::{Globals, collected_run};
use crate::model::set_threads;
use crate::peer::sampling::{Wish, continue_prompt};
use crate::training::GenerateError;

/// `pathswarm generate`
#[derive(Args)]
pub struct Generate {
    /// A collected run.
    folder: PathBuf,
    /// The text to continue.
    #[arg(long)]
    prompt: String,
    /// Tokens to make, at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tokens: u32,
    /// Higher is wilder; 0 takes the likeliest token always.
    #[arg(long, default_value_t = 0.8, allow_negative_numbers = true)]
    temperature: f64,
    /// Draw from so many of the likeliest tokens only; 0 for all.
    #[arg(long, default_value_t = 40)]
    top_k: usize,
    /// The same seed gives the same text.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Generate {
    /// # Errors
    /// If the folder is not a whole collected run, or the prompt is empty.
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        if self.prompt.is_empty() {
            return Err(mistake(&GenerateError::EmptyPrompt).into());
        }
        let machine = globals.machine_only()?;
        let collected = collected_run::open(&self.folder)?;
        set_threads(machine.threads);
        let wish =
            Wish { tokens: self.tokens as usize, temperature: self.temperature, top_k: self.top_k, seed: self.seed };
        let made = continue_prompt(&collected, machine.device, &self.prompt, &wish).map_err(|error| match error
            .downcast::<GenerateError>(
        ) {
            Ok(error @ (GenerateError::EmptyPrompt | GenerateError::Temperature(_))) => mistake(&error).into(),
            Ok(other) => other.into(),
            Err(other) => collected_run::explain(other),
        })?;
        let modules: Vec<String> = collected.grid().modules_of(made.path).iter().map(ToString::to_string).collect();
        let output = globals.output();
        output.text(&format!("path {} (modules {}):", made.path, modules.join(", ")))?;
        output.text(&format!("{}{}", self.prompt, made.text))?;
        output.json(&json!({
            "event": "result", "path": made.path, "modules": modules, "prompt": self.prompt, "text": made.text,
            "prompt_tokens": made.prompt_tokens, "tokens": made.tokens, "ended": made.ended,
        }))?;
        Ok(())
    }
}

fn mistake(error: &GenerateError) -> Mistake {
    let hint = match error {
        GenerateError::Temperature(_) => "give --temperature 0.8, or another number from 0 up",
        _ => "give some text with --prompt",
    };
    Mistake::new(error).hint(hint)
}
