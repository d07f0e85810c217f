//! Completions and chats.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc;

use crate::serve::engine::Place;
use crate::serve::engine::job::{EVENTS, Event, Job};
use crate::serve::limits::LOGPROBS;
use crate::serve::request::completion::Prompt;
use crate::serve::request::{ApiError, ChatRequest, CompletionRequest, Shared, Streaming};
use crate::serve::response::head::Head;
use crate::serve::response::pieces::{Form, Pieces};
use crate::serve::response::{Answer, Choice, chat as chat_answer, completion};
use crate::serve::routes::{App, sse};
use crate::text::chat::template::DEFAULT_STOP;

/// What is generated for each prompt of a request.
struct Plan {
    score_prompt: Option<usize>,
    choices: usize,
    tokens: usize,
    logprobs: Option<usize>,
    stop: Vec<String>,
    ends: Vec<u32>,
}

impl Plan {
    /// # Errors
    /// If an answer may have more log-probabilities than fit in memory.
    fn check(&self, prompts: &[Vec<u32>]) -> Result<(), ApiError> {
        let Some(top) = self.logprobs else { return Ok(()) };
        let read: usize = self.score_prompt.map_or(0, |_| prompts.iter().map(Vec::len).sum());
        let places = (read + prompts.len() * self.tokens).saturating_mul(self.choices);
        let found = places.saturating_mul(top + 1);
        if found <= LOGPROBS {
            return Ok(());
        }
        let message = format!(
            "this answer may have {found} log-probabilities, more than {LOGPROBS}; ask for fewer tokens, choices or prompts \
             at once"
        );
        Err(ApiError::invalid("logprobs", message))
    }
}

impl App {
    /// Begins to generate for each prompt. Returns where the events come.
    fn generate(
        &self,
        place: &Place,
        shared: &Shared,
        prompts: &[Vec<u32>],
        plan: &Plan,
    ) -> Result<mpsc::Receiver<Event>, ApiError> {
        plan.check(prompts)?;
        let (events, receiver) = mpsc::channel(EVENTS);
        let deadline = now() + self.limits.time;
        for (number, prompt) in prompts.iter().enumerate() {
            self.engine.generate(Job {
                target: shared.target.clone(),
                prompt: prompt.clone(),
                score_prompt: plan.score_prompt,
                first_choice: number * plan.choices,
                numbers: 0..plan.choices,
                tokens: plan.tokens,
                sampler: shared.sampler.clone(),
                seed: shared.seed,
                logprobs: plan.logprobs,
                stop: plan.stop.clone(),
                ends: plan.ends.clone(),
                deadline,
                events: events.clone(),
                place: Arc::clone(place),
            })?;
        }
        Ok(receiver)
    }
}

#[expect(clippy::disallowed_methods, reason = "an edge: when a request's time is over")]
fn now() -> Instant {
    Instant::now()
}

/// `POST /v1/completions`
pub async fn completions(State(app): State<App>, body: Result<Bytes, BytesRejection>) -> Result<Response, ApiError> {
    let prepare = |app: &App, body: &[u8]| {
        let request = CompletionRequest::read(body, &app.run, &app.limits)?;
        let prompts = app.encode(&request.prompts, "prompt")?;
        Ok((request, prompts))
    };
    let (place, (request, prompts)) = app.prepare(body, prepare).await?;
    let tokenizer = &app.run.tokenizer;
    let echoed = |(prompt, tokens): (&Prompt, &Vec<u32>)| match prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Tokens(_) => tokenizer.decode(tokens),
    };
    let echoes: Vec<String> =
        if request.echo { request.prompts.iter().zip(&prompts).map(echoed).collect() } else { Vec::new() };
    let ranks = request.best_of > request.shared.n;
    let plan = Plan {
        score_prompt: request.logprobs.filter(|_| request.echo),
        choices: request.best_of,
        tokens: request.tokens,
        logprobs: request.logprobs.or(ranks.then_some(0)),
        stop: request.shared.stop.clone(),
        ends: vec![tokenizer.end_of_document()],
    };
    let events = app.generate(&place, &request.shared, &prompts, &plan)?;
    drop(place);
    let head = Head::new("cmpl", &request.shared.target.named);
    let choices = prompts.len() * request.best_of;
    match request.shared.streaming {
        Streaming::Whole => {
            let answer = Answer::collect(events, choices).await?;
            Ok(Json(completion::whole(&app.run, &request, (&head, answer), &prompts, &echoes)).into_response())
        }
        Streaming::Pieces { usage } => {
            let prompt_tokens = prompts.iter().map(Vec::len).sum();
            let prompts = if echoes.is_empty() { Vec::new() } else { prompts };
            let form = Form::Completion { echoes: prompts.into_iter().zip(echoes).collect(), n: request.shared.n };
            let pieces = pieces(&app, head, &request.shared, (form, request.logprobs), (usage, prompt_tokens), choices);
            Ok(sse::respond(pieces, events))
        }
    }
}

/// `POST /v1/chat/completions`
pub async fn chat(State(app): State<App>, body: Result<Bytes, BytesRejection>) -> Result<Response, ApiError> {
    let prepare = |app: &App, body: &[u8]| {
        let request = ChatRequest::read(body, &app.run, &app.limits)?;
        let wrong = |error: &dyn std::fmt::Display| ApiError::invalid("messages", error.to_string());
        let text = app.run.template.render(&request.messages).map_err(|error| wrong(&error))?;
        let encoded = match app.run.template.is_default() {
            true => app.run.tokenizer.encode(&text),
            false => app.run.tokenizer.encode_with_specials(&text),
        };
        let prompt = encoded.map_err(|error| wrong(&error))?;
        app.check_count(prompt.len(), "messages")?;
        match prompt.is_empty() {
            true => {
                Err(ApiError::invalid("messages", "the chat template makes no text of these messages; give some text"))
            }
            false => Ok((request, prompt)),
        }
    };
    let (place, (request, prompt)) = app.prepare(body, prepare).await?;
    let mut stop = request.shared.stop.clone();
    stop.extend(app.run.template.is_default().then(|| DEFAULT_STOP.to_owned()));
    let plan = Plan {
        score_prompt: None,
        choices: request.shared.n,
        tokens: request.tokens,
        logprobs: request.logprobs,
        stop,
        ends: app.run.chat_ends.clone(),
    };
    let prompt_tokens = prompt.len();
    let events = app.generate(&place, &request.shared, &[prompt], &plan)?;
    drop(place);
    let head = Head::new("chatcmpl", &request.shared.target.named);
    match request.shared.streaming {
        Streaming::Whole => {
            let answer = Answer::collect(events, request.shared.n).await?;
            Ok(Json(chat_answer::whole(&app.run, &request, (&head, answer), prompt_tokens)).into_response())
        }
        Streaming::Pieces { usage } => {
            let form = (Form::Chat, request.logprobs);
            let pieces = pieces(&app, head, &request.shared, form, (usage, prompt_tokens), request.shared.n);
            Ok(sse::respond(pieces, events))
        }
    }
}

fn pieces(
    app: &App,
    head: Head,
    shared: &Shared,
    (form, logprobs): (Form, Option<usize>),
    (usage, prompt_tokens): (bool, usize),
    choices: usize,
) -> Pieces {
    Pieces {
        run: Arc::clone(&app.run),
        head,
        form,
        target: shared.target.clone(),
        seed: shared.seed,
        logprobs,
        usage,
        prompt_tokens,
        choices: vec![Choice::default(); choices],
        offsets: vec![0; choices],
    }
}
