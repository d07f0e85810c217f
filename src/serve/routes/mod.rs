//! The routes of the API.

mod generation;
mod sse;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::http::Refusal;
use crate::serve::engine::{Engine, Place};
use crate::serve::limits::{BODY_BYTES, ServeLimits};
use crate::serve::openapi::description;
use crate::serve::request::completion::Prompt;
use crate::serve::request::{ApiError, EmbeddingRequest};
use crate::serve::response::models::{embeddings, model};
use crate::serve::served_run::ServedRun;

/// Paths that need no API key.
pub const OPEN_PATHS: &[&str] = &["/health", "/openapi.json"];

/// What handlers share.
#[derive(Clone)]
pub struct App {
    pub run: Arc<ServedRun>,
    pub engine: Arc<Engine>,
    pub limits: ServeLimits,
    /// When the server started, in seconds of Unix time.
    pub created_s: u64,
}

impl App {
    /// A server that starts now.
    #[expect(clippy::disallowed_methods, reason = "an edge: models say since when they are there")]
    pub fn new(run: Arc<ServedRun>, engine: Engine, limits: ServeLimits) -> Self {
        let created_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { run, engine: Arc::new(engine), limits, created_s }
    }

    /// Work on a request's body that may take a while, apart from other clients. Returns the request's place with it.
    async fn prepare<T: Send + 'static>(
        &self,
        body: Result<Bytes, BytesRejection>,
        work: impl FnOnce(&Self, &[u8]) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(Place, T), ApiError> {
        let body = body.map_err(|rejection| of_body(&rejection))?;
        let place = self.engine.admit()?;
        let app = self.clone();
        let prepared = tokio::task::spawn_blocking(move || work(&app, &body)).await;
        let prepared = prepared.unwrap_or_else(|_| Err(ApiError::internal("the request could not be read")))?;
        Ok((place, prepared))
    }

    /// The tokens of texts.
    fn encode(&self, texts: &[Prompt], name: &str) -> Result<Vec<Vec<u32>>, ApiError> {
        let encode = |text: &Prompt| match text {
            Prompt::Tokens(tokens) => Ok(tokens.clone()),
            Prompt::Text(text) => {
                self.run.tokenizer.encode(text).map_err(|error| ApiError::invalid(name, error.to_string()))
            }
        };
        let all: Vec<Vec<u32>> = texts.iter().map(encode).collect::<Result<_, _>>()?;
        if all.iter().any(Vec::is_empty) {
            return Err(ApiError::invalid(name, format!("{name} has no tokens; give some text")));
        }
        self.check_count(all.iter().map(Vec::len).sum(), name)?;
        Ok(all)
    }

    fn check_count(&self, found: usize, name: &str) -> Result<(), ApiError> {
        let most = self.limits.prompt_tokens;
        if found <= most {
            return Ok(());
        }
        let message =
            format!("{name} has {found} tokens, and this server reads at most {most} for a request; give less");
        Err(ApiError { code: Some("context_length_exceeded"), ..ApiError::invalid(name, message) })
    }
}

fn of_body(rejection: &BytesRejection) -> ApiError {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::plain(
            413,
            "body_too_large",
            format!("the body has more than {BODY_BYTES} bytes; send less at once"),
        ),
        status => {
            ApiError::plain(status.as_u16(), "invalid_body", "the body could not be read to its end; send it again")
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(self.body())).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The answer to a client that the guard of the server refuses.
pub fn refused(refusal: Refusal) -> Response {
    let error = match refusal {
        Refusal::Token => {
            let message =
                "this server wants an API key that it knows, as Authorization: Bearer KEY; ask its owner for one";
            ApiError::plain(401, "invalid_api_key", message)
        }
        Refusal::Host | Refusal::Origin => ApiError::plain(403, "forbidden", refusal.to_string()),
    };
    error.into_response()
}

/// All routes.
pub fn router(app: App) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/openapi.json", get(describe))
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(one_model))
        .route("/v1/completions", post(generation::completions))
        .route("/v1/chat/completions", post(generation::chat))
        .route("/v1/embeddings", post(embed))
        .fallback(|| async {
            ApiError::plain(
                404,
                "unknown_url",
                "there is nothing at this URL; see GET /v1/models, or POST /v1/completions",
            )
        })
        .method_not_allowed_fallback(|| async {
            let message = "this URL takes another method: POST to generate, GET for /v1/models and /health";
            ApiError::plain(405, "method_not_allowed", message)
        })
        .with_state(app)
}

async fn health(State(app): State<App>) -> axum::Json<Value> {
    axum::Json(json!({ "status": "ok", "model": app.run.name(), "requests": app.engine.requests() }))
}

async fn describe(State(app): State<App>) -> axum::Json<Value> {
    axum::Json(description(&app.run, &app.limits))
}

async fn models(State(app): State<App>) -> axum::Json<Value> {
    let all = app.run.models().map(|(name, which)| model(&app.run, &name, which, app.created_s));
    axum::Json(json!({ "object": "list", "data": all.collect::<Vec<_>>() }))
}

async fn one_model(State(app): State<App>, Path(name): Path<String>) -> Result<axum::Json<Value>, ApiError> {
    match app.run.model(&name) {
        Some(which) => Ok(axum::Json(model(&app.run, &name, which, app.created_s))),
        None => {
            let shown: String = name.chars().take(100).collect();
            let message = format!("The model `{shown}` does not exist; GET /v1/models lists all");
            Err(ApiError { param: Some("model".to_owned()), ..ApiError::plain(404, "model_not_found", message) })
        }
    }
}

async fn embed(State(app): State<App>, body: Result<Bytes, BytesRejection>) -> Result<axum::Json<Value>, ApiError> {
    let prepare = |app: &App, body: &[u8]| {
        let request = EmbeddingRequest::read(body, &app.run)?;
        let mut texts = app.encode(&request.inputs, "input")?;
        texts.iter_mut().for_each(|text| text.truncate(app.run.config.routing.prefix_tokens));
        Ok((request, texts))
    };
    let (place, (request, texts)) = app.prepare(body, prepare).await?;
    let tokens = texts.iter().map(Vec::len).sum();
    let rows = app.engine.features(place, texts).await?;
    Ok(axum::Json(embeddings(&request, &rows, tokens)))
}
