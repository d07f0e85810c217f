//! The fields that completions and chats have in common.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::names::PathId;
use crate::seed::Seed;
use crate::serve::limits::{CHOICES, STOP_BYTES, STOPS};
use crate::serve::request::ApiError;
use crate::serve::request::fields::{Fields, whole};
use crate::serve::served_run::{NamedModel, ServedRun};
use crate::training::Sampler;

/// OpenAI's fields that say something about the client, not about the answer.
pub const IGNORED: [&str; 9] = [
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
    "verbosity",
];

/// How an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streaming {
    /// At once, when it is complete.
    Whole,
    /// Piece by piece, and at the end the number of tokens, if that is asked for.
    Pieces { usage: bool },
}

/// What a text is continued by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub model: NamedModel,
    /// The name that the client used, which the answer repeats.
    pub named: String,
    /// Whether the path was forced by the field `path`, not by the model's name.
    pub by_field: bool,
    /// Paths that the router must not choose.
    pub without: BTreeSet<PathId>,
    /// Number of tokens after which the path is chosen again.
    pub every: Option<usize>,
}

/// What is asked of each choice.
#[derive(Clone, Debug)]
pub struct Shared {
    pub target: Target,
    /// Its seed is not set.
    pub sampler: Sampler,
    pub seed: u64,
    /// Choices for each prompt.
    pub n: usize,
    pub stop: Vec<String>,
    pub streaming: Streaming,
}

impl Shared {
    /// Takes the common fields.
    ///
    /// # Errors
    /// If one is wrong.
    pub fn take(fields: &mut Fields, run: &ServedRun) -> Result<Self, ApiError> {
        fields.ignore(&IGNORED);
        let target = Target::take(fields, run)?;
        let streaming = streaming(fields)?;
        let given = fields.take("seed");
        let seed = match &given {
            None => rand::random(),
            Some(value) => whole(value).ok_or_else(|| {
                ApiError::invalid(
                    "seed",
                    "seed must be a whole number of 64 bits; leave it out for another text each time",
                )
            })?,
        };
        let vocabulary = run.config.model.vocabulary;
        let mut sampler = Sampler::new(1.0, 0, Seed::root(seed));
        sampler.temperature = fields.number("temperature", 0.0..=2.0)?.unwrap_or(1.0);
        sampler.top_k = fields.count("top_k", 0..=vocabulary)?.unwrap_or(0);
        sampler.top_p = fields.number("top_p", 0.0..=1.0)?.unwrap_or(1.0);
        sampler.min_p = fields.number("min_p", 0.0..=1.0)?.unwrap_or(0.0);
        sampler.presence_penalty = fields.number("presence_penalty", -2.0..=2.0)?.unwrap_or(0.0);
        sampler.frequency_penalty = fields.number("frequency_penalty", -2.0..=2.0)?.unwrap_or(0.0);
        sampler.logit_bias = logit_bias(fields, vocabulary)?;
        let n = fields.count("n", 1..=CHOICES)?.unwrap_or(1);
        let shared = Self { target, sampler, seed, n, stop: stop(fields)?, streaming };
        if run.of_swarm() { shared.in_swarm(run) } else { Ok(shared) }
    }

    /// Refuses what peers of a swarm cannot be asked for.
    fn in_swarm(self, run: &ServedRun) -> Result<Self, ApiError> {
        let plain = Sampler::new(self.sampler.temperature, self.sampler.top_k, self.sampler.seed);
        let differs = [
            ("top_p", self.sampler.top_p != plain.top_p),
            ("min_p", self.sampler.min_p != plain.min_p),
            ("presence_penalty", self.sampler.presence_penalty != plain.presence_penalty),
            ("frequency_penalty", self.sampler.frequency_penalty != plain.frequency_penalty),
            ("logit_bias", !self.sampler.logit_bias.is_empty()),
            ("without_paths", !self.target.without.is_empty()),
        ];
        match differs.iter().find(|(_, differs)| *differs) {
            Some((name, _)) => Err(of_swarm(name, run)),
            None => Ok(self),
        }
    }
}

/// A field that only a collected run can follow.
pub fn of_swarm(name: &str, run: &ServedRun) -> ApiError {
    let message = format!(
        "{name} is not supported where a running swarm answers; collect {} (pathswarm collect DIR --from ADDRESS) and serve \
         DIR",
        run.name()
    );
    ApiError { code: Some("unsupported_parameter"), ..ApiError::invalid(name, message) }
}

impl Target {
    /// Takes `model` and this server's own fields.
    ///
    /// # Errors
    /// If the run has no such model or path, or they contradict each other.
    pub fn take(fields: &mut Fields, run: &ServedRun) -> Result<Self, ApiError> {
        let Some(named) = fields.text("model")? else {
            let message = format!("you must provide a model parameter, such as \"model\": {:?}", run.name());
            return Err(ApiError { code: Some("missing_required_parameter"), ..ApiError::invalid("model", message) });
        };
        let Some(mut model) = run.model(&named) else {
            let shown: String = named.chars().take(100).collect();
            let message =
                format!("The model `{shown}` does not exist; GET /v1/models lists all, such as {:?}", run.name());
            let error = ApiError::plain(404, "model_not_found", message);
            return Err(ApiError { param: Some("model".to_owned()), ..error });
        };
        let path = fields.count("path", 0..=run.grid.path_count() as usize - 1)?.map(|path| PathId(path as u32));
        if let Some(path) = path {
            if model != NamedModel::Routed && model != NamedModel::Path(path) {
                let message = format!("path is {path}, but the model {named} is another; ask {} with it", run.name());
                return Err(ApiError::invalid("path", message));
            }
            model = NamedModel::Path(path);
        }
        let without: BTreeSet<PathId> =
            fields.numbers("without_paths")?.unwrap_or_default().into_iter().map(PathId).collect();
        let every = fields.count("route_every", 1..=run.config.model.context)?;
        for (name, given) in [("without_paths", !without.is_empty()), ("route_every", every.is_some())] {
            if given && model != NamedModel::Routed {
                let message = format!("{name} is for the router, and this request names its model; ask {}", run.name());
                return Err(ApiError::invalid(name, message));
            }
        }
        if run.grid.paths().all(|path| without.contains(&path)) {
            return Err(ApiError::invalid("without_paths", "without_paths leaves no path; leave at least one"));
        }
        if every.is_some() && run.config.model.looks_ahead() {
            let message =
                "route_every cannot be used with a run whose features include the tokens to come; leave it out";
            return Err(ApiError::invalid("route_every", message));
        }
        Ok(Self { model, named, by_field: path.is_some(), without, every })
    }
}

fn streaming(fields: &mut Fields) -> Result<Streaming, ApiError> {
    let stream = fields.flag("stream")?.unwrap_or(false);
    let mut usage = false;
    if let Some(mut options) = fields.object("stream_options")? {
        usage = options.flag("include_usage")?.unwrap_or(false);
        options.ignore(&["include_obfuscation"]);
        options.end()?;
        if !stream {
            return Err(ApiError::invalid("stream_options", "stream_options is for \"stream\": true; leave it out"));
        }
    }
    Ok(if stream { Streaming::Pieces { usage } } else { Streaming::Whole })
}

fn stop(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let stops: Option<Vec<String>> = match fields.take("stop") {
        None => Some(Vec::new()),
        Some(Value::String(stop)) => Some(vec![stop]),
        Some(Value::Array(stops)) => stops.into_iter().map(|stop| stop.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    };
    match stops {
        None => Err(ApiError::invalid("stop", "stop must be a string or a list of strings")),
        Some(stops) if stops.len() > STOPS => {
            Err(ApiError::invalid("stop", format!("stop has {} strings; give at most {STOPS}", stops.len())))
        }
        Some(stops) if stops.iter().any(|stop| stop.len() > STOP_BYTES) => Err(ApiError::invalid(
            "stop",
            format!("a string of stop is longer than {STOP_BYTES} bytes; give a shorter one"),
        )),
        // OpenAI ignores an empty one.
        Some(stops) => Ok(stops.into_iter().filter(|stop| !stop.is_empty()).collect()),
    }
}

fn logit_bias(fields: &mut Fields, vocabulary: usize) -> Result<BTreeMap<u32, f64>, ApiError> {
    let bias = fields.take("logit_bias").unwrap_or_else(|| json!({}));
    let Value::Object(bias) = bias else {
        return Err(ApiError::invalid("logit_bias", "logit_bias must be an object, such as {\"50\": -100}"));
    };
    let pair = |(token, bias): (&String, &Value)| {
        let token = token.parse::<u32>().ok().filter(|token| (*token as usize) < vocabulary);
        token.zip(bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias)))
    };
    let pairs: Option<BTreeMap<u32, f64>> = bias.iter().map(pair).collect();
    pairs.ok_or_else(|| {
        let message = format!("logit_bias must map token ids from 0 to {} to numbers from -100 to 100", vocabulary - 1);
        ApiError::invalid("logit_bias", message)
    })
}
