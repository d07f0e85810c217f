//! Models in the format of `transformers`: a folder with `config.json` and safetensors files.
//!
//! A network here is one of the models of [`Layout`], if any computes the same: weight by weight, with the rows of some
//! tensors put together. GPT-2 and GPT-NeoX always have biases, which are zero if the path has none.
//!
//! [`settings`] reads and writes `config.json`, [`files`] finds the weights, [`tensors`] maps names and layouts of
//! tensors, and [`weights()`] and [`levels`] convert their values. [`whole_run`] is a run with all its paths, which comes
//! with code that computes it. [`peft`] writes adapters alone.

pub mod files;
mod layout;
pub mod peft;
pub mod pretrained;
pub mod settings;
pub mod tensors;
mod weights;
pub mod whole_run;

use safetensors::tensor::SafeTensorError;

pub use files::{FilesError, WeightFiles};
pub use layout::Layout;
pub use pretrained::PretrainedFiles;
pub use weights::{levels, weights};

#[derive(Debug, thiserror::Error)]
pub enum HuggingFaceError {
    #[error("{key} = {found}: {layout}, the nearest model of transformers, cannot express this")]
    NoCounterpart { key: &'static str, found: String, layout: &'static str },
    #[error("[model.directional] has no counterpart: no model of transformers routes directions of its heads")]
    Directional,
    #[error("[model.images] has no counterpart: the models of transformers that are written here read text")]
    Images,
    #[error(
        "architecture = \"dna\" has no counterpart: in models of transformers every token goes through every block"
    )]
    Dna,
    #[error(
        "architecture = \"dna\": the code that is written for transformers knows no network whose tokens choose their modules"
    )]
    WholeDna,
    #[error("the run has adapters, which the code that is written for transformers does not know")]
    WholeAdapter,
    #[error("the run routes at random, which the code that is written for transformers does not know")]
    WholeRandom,
    #[error("config.json: {key} = {found}, this program knows {known}")]
    Setting { key: String, found: String, known: &'static str },
    #[error("config.json: {0}")]
    Json(#[from] serde_json::Error),
    #[error("config.json: {0}")]
    Model(#[from] crate::config::KeyError),
    #[error("safetensors: {0}")]
    Format(#[from] SafeTensorError),
    #[error("no file has tensor {tensor}, which config.json asks for{hint}")]
    Missing { tensor: String, hint: &'static str },
    #[error("{file}: tensor {name} is {found}, config.json makes it {expected:?} of f32, f16 or bf16")]
    Tensor { file: String, name: String, found: String, expected: Vec<usize> },
    #[error("{file}: tensor {name} has values that are not finite")]
    NotFinite { file: String, name: String },
    #[error(
        "{file}: tensor {name} is not one of the model in config.json, which has {blocks} blocks; it would be lost: give \
         the config.json that belongs to the file"
    )]
    Unread { file: String, name: String, blocks: usize },
    #[error(
        "{file}: tensor {name} differs from the embedding, but config.json says tie_word_embeddings = true; set it to \
         false to keep the head, or remove the tensor"
    )]
    Untied { file: String, name: String },
    #[error("this run has no adapters: it trained the model itself")]
    NoAdapter,
    #[error(
        "{0} keeps queries, keys and values in one matrix, which an adapter of PEFT would have to change as a whole"
    )]
    Stacked(&'static str),
    #[error("besides adapters this run trained {0}, which an adapter of PEFT does not have")]
    Besides(String),
    #[error("level {level} has {found} values, the model needs {expected}")]
    Level { level: usize, found: usize, expected: usize },
}
