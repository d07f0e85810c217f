//! `pathswarm generate`: a prompt, continued by the path that it is routed to.

use clap::Args;
use serde_json::json;

use crate::cli::swarm::Globals;
use crate::cli::swarm::mistake::Mistake;
use crate::cli::swarm::model::source;
use crate::cli::swarm::model::source::Whom;
use crate::names::PathId;
use crate::peer::inference::sample::{Wish, continue_prompt};
use crate::training::GenerateError;

/// `pathswarm generate`
#[derive(Args)]
pub struct Generate {
    #[command(flatten)]
    whom: Whom,
    /// The text to continue.
    #[arg(long)]
    prompt: String,
    /// Most tokens to generate.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tokens: u32,
    /// Higher is more random; 0 always takes the likeliest token.
    #[arg(long, default_value_t = 0.8, allow_negative_numbers = true)]
    temperature: f64,
    /// Draw only from so many of the likeliest tokens; 0 for all.
    #[arg(long, default_value_t = 40)]
    top_k: usize,
    /// The same seed gives the same text.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Generate {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        if self.prompt.is_empty() {
            return Err(mistake(&GenerateError::EmptyPrompt).into());
        }
        let mut client = self.whom.open(globals)?;
        if client.config().model.reads_images() {
            let hint = "use evaluate for its accuracy, or inspect dna for its routes";
            return Err(Mistake::new("this run reads images and generates no text").hint(hint).into());
        }
        let wish = Wish {
            tokens: self.tokens as usize,
            temperature: self.temperature,
            top_k: self.top_k,
            seed: self.seed,
            every: self.whom.route_every(),
        };
        let made = continue_prompt(&mut *client, &self.prompt, &wish).map_err(|error| {
            match error.downcast::<GenerateError>() {
                Ok(error @ (GenerateError::EmptyPrompt | GenerateError::Temperature(_))) => mistake(&error).into(),
                Ok(other) => other.into(),
                Err(other) => source::explain(other),
            }
        })?;
        let grid = client.config().grid()?;
        let modules = |path| -> Vec<String> { grid.modules_of(path).iter().map(ToString::to_string).collect() };
        let output = globals.output();
        let named = |(path, _): &(PathId, usize)| format!("path {path} (modules {})", modules(*path).join(", "));
        output.text(&format!("{}:", made.paths.iter().map(named).collect::<Vec<_>>().join(", then ")))?;
        output.text(&format!("{}{}", self.prompt, made.text))?;
        source::answered(&*client).map_or(Ok(()), |line| output.text(&line))?;
        let path = made.paths.first().map_or(PathId(0), |(path, _)| *path);
        let parts = made.paths.iter().map(|(path, tokens)| json!({ "path": path, "tokens": tokens }));
        output.json(&json!({
            "event": "result", "path": path, "modules": modules(path), "prompt": self.prompt, "text": made.text,
            "prompt_tokens": made.prompt_tokens, "tokens": made.tokens, "ended": made.ended,
            "paths": parts.collect::<Vec<_>>(), "peers": client.answered(),
        }))?;
        Ok(())
    }
}

fn mistake(error: &GenerateError) -> Mistake {
    let hint = match error {
        GenerateError::Temperature(_) => "give a number of 0 or more, such as --temperature 0.8",
        _ => "give some text with --prompt",
    };
    Mistake::new(error).hint(hint)
}
