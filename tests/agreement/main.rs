//! The same numbers as scikit-learn, PyTorch, `transformers` and a reader in Python. What they computed, and the scripts that
//! made it, are in tests/reference.

mod adapters;
mod chat_templates;
mod directional;
mod gguf;
mod hugging_face;
mod kmeans;
mod logistic;
mod read_frame;
#[cfg(feature = "learning")]
mod reference;
#[path = "../support/run.rs"]
mod run;
#[path = "../support/text.rs"]
mod text;
mod torch;
mod whole_run;
