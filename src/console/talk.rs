//! The talk: a question about text, answered by the run token by token, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::console::Shared;
use crate::names::PathId;
use crate::peer::inference::client::Draw;
use crate::peer::inference::talk::{Question, Said, Talk, TalkError};

/// The most tokens of an answer.
const MOST_TOKENS: usize = 1_000;

/// The longest text, in bytes.
pub(super) const MOST_TEXT_BYTES: usize = 32 << 10;

/// The highest temperature.
const MOST_TEMPERATURE: f64 = 10.0;

/// Events that wait for a viewer; the answer waits for one that does not read.
const EVENTS: usize = 64;

/// A question, as the page sends it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    text: String,
    tokens: usize,
    temperature: f64,
    top_k: usize,
    seed: u64,
    every: Option<usize>,
    path: Option<u32>,
}

impl Asked {
    /// The question, if it is within bounds; else what is wrong.
    fn checked(self, paths: u32) -> Result<Question, String> {
        let Self { text, tokens, temperature, top_k, seed, every, path } = self;
        if text.is_empty() || text.len() > MOST_TEXT_BYTES {
            return Err(format!("give some text, at most {MOST_TEXT_BYTES} bytes"));
        }
        if !(1..=MOST_TOKENS).contains(&tokens) {
            return Err(format!("ask for 1 to {MOST_TOKENS} tokens"));
        }
        if !(0.0..=MOST_TEMPERATURE).contains(&temperature) {
            return Err(format!("give a temperature from 0 to {MOST_TEMPERATURE}"));
        }
        if every == Some(0) {
            return Err("choose the path again after at least 1 token".to_owned());
        }
        if path.is_some_and(|path| path >= paths) {
            return Err(format!("the run has paths 0 to {}", paths.saturating_sub(1)));
        }
        let draw = Draw { temperature, top_k, seed };
        Ok(Question { text, tokens, draw, every, path: path.map(PathId) })
    }
}

/// Why nothing can be asked here; nothing if it can.
fn why_not(shared: &Shared) -> Option<&'static str> {
    match (&shared.talk, shared.telemetry.run_facts()) {
        (None, _) => Some("this console asks no run"),
        (Some(_), None) => Some("the run is being prepared"),
        (Some(_), Some(facts)) if facts.reads_images => Some("this run reads images and generates no text"),
        (Some(_), Some(_)) => None,
    }
}

pub(super) async fn about(State(shared): State<Shared>) -> Response {
    let paths = shared.telemetry.run_facts().map_or(0, |facts| facts.paths);
    Json(json!({ "paths": paths, "route_every": null, "why_not": why_not(&shared) })).into_response()
}

pub(super) async fn ask(State(shared): State<Shared>, body: Bytes) -> Response {
    let (Some(talk), None) = (shared.talk.clone(), why_not(&shared)) else {
        return (StatusCode::NOT_FOUND, why_not(&shared).unwrap_or_default()).into_response();
    };
    let paths = shared.telemetry.run_facts().map_or(0, |facts| facts.paths);
    let asked = serde_json::from_slice::<Asked>(&body).map_err(|error| error.to_string());
    let question = match asked.and_then(|asked| asked.checked(paths)) {
        Ok(question) => question,
        Err(wrong) => return (StatusCode::BAD_REQUEST, wrong).into_response(),
    };
    let Ok(place) = shared.talks.clone().try_acquire_owned() else {
        return (StatusCode::TOO_MANY_REQUESTS, TalkError::Busy.to_string()).into_response();
    };
    let (said, events) = mpsc::channel(EVENTS);
    let begun = std::thread::Builder::new().name("talking".to_owned()).spawn(move || {
        run(&talk, &question, &said);
        drop(place);
    });
    if let Err(error) = begun {
        return (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response();
    }
    let frames = stream::unfold(events, async |mut events: mpsc::Receiver<Value>| {
        let event = events.recv().await?;
        Some((Ok::<_, Infallible>(Event::default().data(event.to_string())), events))
    });
    Sse::new(frames).keep_alive(KeepAlive::default()).into_response()
}

/// Answers on a thread of its own. A viewer that hangs up ends it.
fn run(talk: &Arc<Talk>, question: &Question, said: &mpsc::Sender<Value>) {
    let mut say = |what: Said| {
        let event = match what {
            Said::Path(path) => json!({ "path": path }),
            Said::Token { text, probability } => json!({ "token": text, "p": probability }),
            Said::Ends { ended, tokens } => json!({ "ended": ended, "tokens": tokens }),
        };
        said.blocking_send(event).is_ok()
    };
    if let Err(error) = talk.answer(question, &mut say) {
        // The viewer may be gone.
        let _ = said.blocking_send(json!({ "error": error.to_string() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_out_of_bounds_says_what_is_wrong() {
        let asked = |change: Value| {
            let mut asked = json!({ "text": "a", "tokens": 9, "temperature": 0.5, "top_k": 4, "seed": 1, "every": null,
                                    "path": 3 });
            asked.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            serde_json::from_value::<Asked>(asked).map_err(|error| error.to_string())?.checked(4)
        };
        assert_eq!(asked(json!({})).unwrap().path, Some(PathId(3)));
        for (change, word) in [
            (json!({ "text": "" }), "text"),
            (json!({ "text": "a".repeat(40_000) }), "bytes"),
            (json!({ "tokens": 0 }), "tokens"),
            (json!({ "tokens": 1_001 }), "tokens"),
            (json!({ "temperature": -1.0 }), "temperature"),
            (json!({ "temperature": 1e300 }), "temperature"),
            (json!({ "every": 0 }), "again"),
            (json!({ "path": 4 }), "paths 0 to 3"),
            (json!({ "paths": 4 }), "paths"),
        ] {
            let wrong = asked(change.clone()).unwrap_err();
            assert!(wrong.contains(word), "{change}: {wrong}");
        }
    }
}
