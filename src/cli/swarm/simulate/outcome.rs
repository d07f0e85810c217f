//! The result: a table for people, one object for programs.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::swarm::{SwarmResult, shown};
use crate::config::RunConfig;
use crate::names::PathId;
use crate::training::Score;

/// A text that the run has continued.
pub struct Sample {
    pub path: PathId,
    pub prompt: String,
    pub text: String,
}

/// All results.
pub struct Outcome {
    /// A sample of generated text, if it reads text.
    pub sample: Option<Sample>,
    pub run: RunConfig,
    /// Its folder.
    pub folder: PathBuf,
    /// The ancestor on the test text.
    pub ancestor: Score,
    /// A dense path, trained for as many inner steps as each path.
    pub dense: Score,
    pub dipaco: SwarmResult,
    /// The same on random shards.
    pub random: Option<SwarmResult>,
    /// Parameters of a path.
    pub parameters: u64,
}

fn scores(score: Score) -> Value {
    json!({ "perplexity": score.perplexity(), "bits_per_byte": score.bits_per_byte() })
}

/// Bits per parameter and outer step, up and down. All bytes count; messages are divided evenly between both
/// directions. `None` if the run had been trained before.
fn bits(result: &SwarmResult) -> Option<(f64, f64)> {
    if result.tokens == 0 {
        return None;
    }
    let messages = result.message_bytes as f64 / 2.0;
    let per = |bytes: u64, parameters: u64| 8.0 * (bytes as f64 + messages) / (parameters.max(1) as f64);
    let synced = result.synced;
    let up = per(synced.contribution_bytes, synced.contribution_parameters);
    Some((up, per(synced.average_bytes, synced.average_parameters)))
}

fn tokens_per_s(result: &SwarmResult) -> Option<f64> {
    (result.tokens > 0).then(|| result.tokens as f64 / result.train_s.max(1e-9))
}

impl Outcome {
    /// The last line of `--format json`.
    pub fn to_json(&self) -> Value {
        let bits = bits(&self.dipaco).map(|(up, down)| json!({ "up": up, "down": down }));
        let paths: Vec<Value> = self
            .dipaco
            .paths
            .iter()
            .map(|(path, (held_out, test))| {
                json!({ "path": path.0, "held_out": scores(*held_out), "test": scores(*test), "test_bytes": test.bytes })
            })
            .collect();
        let mut result = json!({
            "event": "result",
            "ancestor": scores(self.ancestor),
            "dense": scores(self.dense),
            "dipaco": scores(self.dipaco.test),
            "paths": paths,
            "parameters_per_path": self.parameters,
            "bits_per_parameter_per_sync": bits,
            "tokens_per_s": tokens_per_s(&self.dipaco),
            "train_s": self.dipaco.train_s,
            "computing_s": self.dipaco.computing_s,
            "trained_share": self.dipaco.trained_share,
            "test_tokens": self.dipaco.test.tokens,
            "test_bytes": self.dipaco.test.bytes,
            "module_hashes_agree": self.dipaco.module_hashes_agree,
            "folder": shown(&self.folder),
        });
        if let Some(random) = &self.random {
            result["random"] = scores(random.test);
        }
        if let Some(Sample { path, prompt, text }) = &self.sample {
            result["sample"] = json!({ "path": path.0, "prompt": prompt, "text": text });
        }
        result
    }

    /// The same for people.
    pub fn table(&self) -> Vec<String> {
        let steps = self.run.training.total_steps();
        let row = |name: &str, steps: u64, score: Score| {
            let bits = score.bits_per_byte().map_or_else(|| "-".to_owned(), |bits| format!("{bits:.4}"));
            let perplexity = score.perplexity().map_or_else(|| "-".to_owned(), |perplexity| format!("{perplexity:.2}"));
            format!("{name:<28} {steps:>6}  {perplexity:>10}  {bits:>13}")
        };
        let mut lines = vec![
            String::new(),
            format!("{:<28} {:>6}  {:>10}  {:>13}", "on the test text", "steps", "perplexity", "bits per byte"),
            row("ancestor", self.run.training.ancestor_steps, self.ancestor),
            row("dense path", steps, self.dense),
        ];
        if let Some(random) = &self.random {
            lines.push(row("DiPaCo, random shards", steps, random.test));
        }
        lines.push(row("DiPaCo", steps, self.dipaco.test));
        let result = &self.dipaco;
        if result.test.tokens == 0 {
            lines.push("there was nothing to score: no test text is longer than what chooses a path".to_owned());
        }
        lines.push(String::new());
        if let (Some((up, down)), Some(tokens_per_s)) = (bits(result), tokens_per_s(result)) {
            lines.push(format!(
                "trained on {} tokens in {:.0} s: {:.0} tokens/s; inner steps computed {:.0} % of that time",
                result.tokens,
                result.train_s,
                tokens_per_s,
                100.0 * result.computing_s / result.train_s.max(1e-9)
            ));
            if let Some(share) = result.trained_share {
                lines.push(format!(
                    "in the second half of its phases, a path trained {:.1} % of its time",
                    100.0 * share
                ));
            }
            lines.push(format!("bits per parameter and exchange: {up:.2} up, {down:.2} down, all messages counted"));
        }
        let agree = if result.module_hashes_agree { "the same" } else { "NOT the same" };
        lines.push(format!("all members of each module have {agree} parameters, bit for bit"));
        lines.push(String::new());
        if let Some(Sample { path, prompt, text }) = &self.sample {
            lines.push(format!("a test document's beginning, continued on path {path}:"));
            lines.push(format!("{prompt} ▸{text}"));
            lines.push(String::new());
        }
        lines.push(format!("the run is in {0}, its modules as safetensors in {0}/model", shown(&self.folder)));
        lines
    }
}
