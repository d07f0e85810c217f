//! What of a run its server knows while it serves: the names of its models, the tokenizer, and how chats become text.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::config::RunConfig;
use crate::grid::{Grid, GridError};
use crate::model::hugging_face::pretrained::PretrainedFiles;
use crate::names::PathId;
use crate::serve::chat_template::{ChatTemplate, TemplateError};
use crate::text::Tokenizer;

/// Which model a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedModel {
    /// The path that the router chooses.
    Routed,
    Ancestor,
    Path(PathId),
}

/// A run that is served.
pub struct ServedRun {
    pub config: RunConfig,
    pub grid: Grid,
    pub tokenizer: Tokenizer,
    pub template: ChatTemplate,
    /// Tokens that end an answer in a chat.
    pub chat_ends: Vec<u32>,
    /// Whether answers come from a swarm, which tells tokens alone.
    pub of_swarm: bool,
}

impl ServedRun {
    /// # Errors
    /// If the run's chat template is none.
    pub fn new(
        config: RunConfig,
        tokenizer: Tokenizer,
        pretrained: &PretrainedFiles,
        of_swarm: bool,
    ) -> Result<Self, ServedRunError> {
        let ends: BTreeSet<u32> = eos_ids(pretrained).chain([tokenizer.end_of_document()]).collect();
        let template = ChatTemplate::of(pretrained)?;
        Ok(Self { grid: config.grid()?, config, tokenizer, template, chat_ends: ends.into_iter().collect(), of_swarm })
    }

    /// The name of the routed model: the run's.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The names of all models, the routed one first.
    pub fn models(&self) -> impl Iterator<Item = (String, NamedModel)> + '_ {
        let path = |path: PathId| (format!("{}/path-{path}", self.name()), NamedModel::Path(path));
        let whole =
            [(self.name().to_owned(), NamedModel::Routed), (format!("{}/ancestor", self.name()), NamedModel::Ancestor)];
        let whole = whole.into_iter().filter(|(_, model)| !self.of_swarm || *model != NamedModel::Ancestor);
        whole.chain(self.grid.paths().map(path))
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
