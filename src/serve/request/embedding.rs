//! A request to `/v1/embeddings`.

use serde_json::json;

use crate::serve::limits::EMBEDDINGS;
use crate::serve::request::ApiError;
use crate::serve::request::completion::{Prompt, texts};
use crate::serve::request::fields::Fields;
use crate::serve::request::sampling::{Target, of_swarm};
use crate::serve::served_run::{ServedRun, Source};

#[derive(Clone, Debug)]
pub struct EmbeddingRequest {
    pub named: String,
    /// At least one.
    pub inputs: Vec<Prompt>,
    /// Whether vectors are sent as the base64 of their 32-bit floats.
    pub base64: bool,
}

impl EmbeddingRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// If a field is wrong or not known.
    pub fn read(body: &[u8], run: &ServedRun) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        fields.ignore(&["user"]);
        let Target { named, .. } = Target::take(&mut fields, run)?;
        if run.of_swarm() {
            return Err(of_swarm("input", run));
        }
        if run.source == Source::Model {
            let message = "this server has one model and no router, and embeddings are what a router reads; serve a collected \
                           run";
            return Err(ApiError { code: Some("unsupported_parameter"), ..ApiError::invalid("model", message) });
        }
        let width = run.config.model.width;
        let reason = format!("the router's features have {width} numbers; leave it out");
        fields.refuse("dimensions", &[json!(width)], &reason)?;
        let base64 = match fields.text("encoding_format")?.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err(ApiError::invalid("encoding_format", "encoding_format must be float or base64")),
        };
        let inputs = texts(&mut fields, "input", run.config.model.vocabulary)?;
        fields.end()?;
        if inputs.len() > EMBEDDINGS {
            return Err(ApiError::invalid("input", format!("input has more than {EMBEDDINGS} texts; give fewer")));
        }
        Ok(Self { named, inputs, base64 })
    }
}
