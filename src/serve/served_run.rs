//! What of a run its server knows while it serves: the names of its models, the tokenizer, and how chats become text.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::config::RunConfig;
use crate::grid::{Grid, GridError};
use crate::model::hugging_face::pretrained::PretrainedFiles;
use crate::names::PathId;
use crate::text::Tokenizer;
use crate::text::chat::template::chat_of;
use crate::text::chat::{ChatTemplate, TemplateError};

/// Which model a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedModel {
    /// The path that the router chooses.
    Routed,
    Ancestor,
    Path(PathId),
}

/// Where answers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A collected run on this machine.
    Collected,
    /// The peers of a running swarm, which tell tokens alone.
    Swarm,
    /// One model without a router: a folder of `transformers`.
    Model,
}

/// A run that is served, or one model, which is then the only path of a run.
pub struct ServedRun {
    pub config: RunConfig,
    pub grid: Grid,
    pub tokenizer: Tokenizer,
    pub template: ChatTemplate,
    /// Tokens that end an answer in a chat.
    pub chat_ends: Vec<u32>,
    pub source: Source,
}

impl ServedRun {
    /// # Errors
    /// If the run's chat template is none.
    pub fn new(
        config: RunConfig,
        tokenizer: Tokenizer,
        pretrained: &PretrainedFiles,
        source: Source,
    ) -> Result<Self, ServedRunError> {
        let ends: BTreeSet<u32> = eos_ids(pretrained).chain([tokenizer.end_of_document()]).collect();
        let chat = config.text.chat.clone().or_else(|| chat_of(pretrained.exported()));
        let template = ChatTemplate::of(chat.as_ref())?;
        Ok(Self { grid: config.grid()?, config, tokenizer, template, chat_ends: ends.into_iter().collect(), source })
    }

    /// One model with this name, which sees as many tokens as it says.
    ///
    /// # Errors
    /// If its chat template is none.
    pub fn of_model(
        config: RunConfig,
        tokenizer: Tokenizer,
        pretrained: &PretrainedFiles,
    ) -> Result<Self, ServedRunError> {
        Self::new(config.undivided(), tokenizer, pretrained, Source::Model)
    }

    /// Whether answers come from a swarm, which tells tokens alone.
    pub fn of_swarm(&self) -> bool {
        self.source == Source::Swarm
    }

    /// The name of the routed model: the run's. Without a router, that of the only model.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The names of all models, the routed one first.
    pub fn models(&self) -> impl Iterator<Item = (String, NamedModel)> + '_ {
        let first = match self.source {
            Source::Model => NamedModel::Path(PathId(0)),
            Source::Collected | Source::Swarm => NamedModel::Routed,
        };
        let path = |path: PathId| (format!("{}/path-{path}", self.name()), NamedModel::Path(path));
        let ancestor = (format!("{}/ancestor", self.name()), NamedModel::Ancestor);
        let ancestor = (self.source == Source::Collected).then_some(ancestor);
        let paths = self.grid.paths().filter(|_| self.source != Source::Model).map(path);
        std::iter::once((self.name().to_owned(), first)).chain(ancestor).chain(paths)
    }

    /// The model of this name.
    pub fn model(&self, name: &str) -> Option<NamedModel> {
        self.models().find(|(known, _)| known == name).map(|(_, model)| model)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServedRunError {
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Grid(#[from] GridError),
}

/// The tokens that end what a pretrained model says, as its own files name them.
fn eos_ids(pretrained: &PretrainedFiles) -> impl Iterator<Item = u32> + '_ {
    let generation = pretrained.exported().find(|(name, _)| *name == "generation_config.json");
    let generation = generation.and_then(|(_, text)| serde_json::from_str::<Value>(text).ok());
    let config = pretrained.config().map(Value::Object);
    let ids = |file: Value| match &file["eos_token_id"] {
        Value::Array(ids) => ids.clone(),
        one => vec![one.clone()],
    };
    let ids = [generation, config].into_iter().flatten().flat_map(ids);
    ids.filter_map(|id| u32::try_from(id.as_u64()?).ok())
}
