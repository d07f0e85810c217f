//! A folder that `transformers` writes or reads.

use std::path::Path;

use crate::cli::swarm::mistake::{Mistake, OrMistake};
use crate::config::{LevelConfig, ModelConfig, level_tensors};
use crate::model::hugging_face::{
    self, FilesError, HuggingFaceError, Layout, PretrainedFiles, WeightFiles, files, settings,
};
use crate::text::Tokenizer;

/// A model in such a folder, without its weights.
pub(in crate::cli::swarm) struct ForeignModel<'a> {
    folder: &'a Path,
    /// As `config.json` says, with the context that the model was made for.
    pub model: ModelConfig,
    pub layout: Layout,
    pub tokenizer: Tokenizer,
    pub pretrained: PretrainedFiles,
}

fn remedy(error: &HuggingFaceError) -> &'static str {
    match error {
        HuggingFaceError::Json(_) => "it is not complete: copy or download it again",
        HuggingFaceError::Setting { found, .. } if found == "missing" => {
            "copy or download the model's own config.json again"
        }
        HuggingFaceError::Setting { key, .. } if key.starts_with("quantization") => {
            "give the model in f32, f16 or bf16"
        }
        _ => {
            "GPT-2, GPT-NeoX, Llama, Mistral, Qwen2, Qwen3 and OLMo 2 with full attention can be read; where a window of \
             attention is too short, give a --context that is no longer"
        }
    }
}

impl<'a> ForeignModel<'a> {
    /// Reads all but the weights. `longest` is the longest sequence that will be read, if that is not the model's own.
    pub fn open(folder: &'a Path, longest: Option<usize>) -> Result<Self, Mistake> {
        let of = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
        let config = read(folder, "config.json")?;
        let (model, layout) =
            settings::read(&config, longest).map_err(|error| Mistake::new(of(&error)).hint(remedy(&error)))?;
        let tokenizer = Tokenizer::adopt(&folder.join("tokenizer.json"))
            .or_mistake("give a folder whose tokenizer.json gives every text back")?;
        if tokenizer.vocabulary() > model.vocabulary {
            let (found, vocabulary) = (tokenizer.vocabulary(), model.vocabulary);
            let error = of(&format!("tokenizer.json has {found} tokens, config.json says vocab_size = {vocabulary}"));
            return Err(Mistake::new(error).hint("give the model's own tokenizer"));
        }
        let pretrained = PretrainedFiles::in_folder(folder)
            .or_mistake("give the model's own files, as save_pretrained writes them")?;
        Ok(Self { folder, model, layout, tokenizer, pretrained })
    }

    /// The model with this context, which is its own if none is given.
    pub fn with_context(&self, context: Option<usize>) -> Result<ModelConfig, Mistake> {
        match context.unwrap_or(self.model.context) {
            longer if longer > self.model.context => {
                let error = format!("--context {longer}: the model takes {} tokens", self.model.context);
                Err(Mistake::new(error).hint("give a shorter one"))
            }
            context => Ok(ModelConfig { context, ..self.model.clone() }),
        }
    }

    /// The values of its levels as those of `model`, whose context may be shorter, and the names of files that were not
    /// read.
    pub fn levels(&self, model: &ModelConfig, levels: &[LevelConfig]) -> Result<(Vec<Vec<f32>>, Vec<String>), Mistake> {
        let files = weights(self.folder)?;
        let values = hugging_face::levels(&self.model, levels, &files)
            .map_err(|error| format!("{}: {error}", self.folder.display()))
            .or_mistake("the weights must match config.json")?;
        let cut = |(level, values)| cut_to_context((&self.model, model), level, values);
        Ok((levels.iter().zip(values).map(cut).collect(), files.unread))
    }
}

/// Only the tensor of learned positions depends on the context.
fn cut_to_context((full, model): (&ModelConfig, &ModelConfig), level: &LevelConfig, values: Vec<f32>) -> Vec<f32> {
    if full.context == model.context {
        return values;
    }
    let mut rest = values.as_slice();
    let mut kept = Vec::with_capacity(values.len());
    for (whole, wanted) in level_tensors(full, level).iter().zip(level_tensors(model, level)) {
        let (own, after) = rest.split_at(whole.count());
        rest = after;
        kept.extend_from_slice(&own[..wanted.count()]);
    }
    kept
}

pub(in crate::cli::swarm) fn must_be_new(folder: &Path) -> Result<(), Mistake> {
    match std::fs::read_dir(folder).map(Iterator::count) {
        Ok(0) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(Mistake::new(format!("{} is not empty", folder.display())).hint("name a new folder")),
        Err(error) => Err(Mistake::new(format!("{}: {error}", folder.display())).hint("name a new folder")),
    }
}

/// A file of it.
fn read(folder: &Path, name: &str) -> Result<Vec<u8>, Mistake> {
    files::read(folder, name).map_err(explain)
}

/// Its weights, from one file or several.
fn weights(folder: &Path) -> Result<WeightFiles, Mistake> {
    WeightFiles::in_folder(folder).map_err(explain)
}

fn explain(error: FilesError) -> Mistake {
    let whole = "give a folder with config.json, model.safetensors and tokenizer.json, as save_pretrained writes it";
    let hint = match &error {
        FilesError::Unreadable { .. } | FilesError::Format { .. } => whole,
        FilesError::Pointer(_) => "fetch the file itself",
        FilesError::None { .. } | FilesError::Index { .. } => "complete the folder",
        FilesError::Twice { .. } | FilesError::Elsewhere { .. } => "download the model again into a new folder",
    };
    Mistake::new(error).hint(hint)
}
