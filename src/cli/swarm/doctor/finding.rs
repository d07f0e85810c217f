//! One finding of the doctor.

use serde_json::{Map, Value, json};

/// The meaning of a finding for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No problem.
    Good,
    /// A peer works, but could work better.
    Poor,
    /// A peer would not work.
    Wrong,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Poor => "poor",
            Self::Wrong => "wrong",
        }
    }
}

/// The subject of a check, its result, and advice.
#[derive(Clone, Debug)]
pub struct Finding {
    /// For instance `disk`.
    pub about: &'static str,
    pub verdict: Verdict,
    /// The result as text.
    pub found: String,
    /// Advice.
    pub remedy: Option<String>,
    /// Numbers, for programs.
    values: Map<String, Value>,
}

impl Finding {
    pub fn good(about: &'static str, found: impl Into<String>) -> Self {
        Self { about, verdict: Verdict::Good, found: found.into(), remedy: None, values: Map::new() }
    }

    pub fn poor(about: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Poor, remedy: Some(remedy.into()), ..Self::good(about, found) }
    }

    pub fn wrong(about: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Wrong, ..Self::poor(about, found, remedy) }
    }

    /// Adds advice to a good finding.
    pub fn advice(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    /// Says it in other words.
    pub fn said(self, found: String) -> Self {
        Self { found, ..self }
    }

    /// Adds a value.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.values.insert(key.to_owned(), value.into());
        self
    }

    /// For people.
    pub fn in_words(&self) -> String {
        let sign = match self.verdict {
            Verdict::Good => "  ok ",
            Verdict::Poor => "note ",
            Verdict::Wrong => "WRONG",
        };
        let remedy = self.remedy.as_ref().map_or_else(String::new, |remedy| format!("\n        {remedy}"));
        format!("{sign} {}: {}{remedy}", self.about, self.found)
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let Self { about, verdict, found, remedy, values } = self;
        let verdict = verdict.name();
        json!({
            "event": "finding", "about": about, "verdict": verdict, "found": found, "remedy": remedy, "values": values,
        })
    }
}
