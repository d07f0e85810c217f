//! Errors in OpenAI's form. The message says what to do.

use serde_json::{Value, json};

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status.
    pub status: u16,
    pub message: String,
    /// The field that is wrong.
    pub param: Option<String>,
    pub code: Option<&'static str>,
    /// After which a client should come back.
    pub retry_after_s: Option<u64>,
}

impl ApiError {
    /// An error of the client.
    pub fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self {
            status: 400,
            message: message.into(),
            param: Some(param.to_owned()),
            code: Some("invalid_value"),
            retry_after_s: None,
        }
    }

    /// An error that is no field's.
    pub fn plain(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: Some(code), retry_after_s: None }
    }

    /// Too many requests.
    pub fn busy(most: usize, retry_after_s: u64) -> Self {
        let message = format!(
            "this server has {most} requests already, its limit; ask again in {retry_after_s} s, or ask its owner for a \
             larger --requests"
        );
        Self { retry_after_s: Some(retry_after_s), ..Self::plain(429, "rate_limit_exceeded", message) }
    }

    /// An error of the server. Details are in its log.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::plain(500, "internal_error", message)
    }

    /// The body.
    pub fn body(&self) -> Value {
        let kind = match self.status {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }
}
