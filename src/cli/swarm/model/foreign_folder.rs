//! A folder that `transformers` writes or reads.

use std::path::Path;

use crate::cli::swarm::mistake::Mistake;
use crate::model::hugging_face::{FilesError, WeightFiles, files};

pub(in crate::cli::swarm) fn must_be_new(folder: &Path) -> Result<(), Mistake> {
    match std::fs::read_dir(folder).map(Iterator::count) {
        Ok(0) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(Mistake::new(format!("{} is not empty", folder.display())).hint("name a new folder")),
        Err(error) => Err(Mistake::new(format!("{}: {error}", folder.display())).hint("name a new folder")),
    }
}

/// A file of it.
pub(in crate::cli::swarm) fn read(folder: &Path, name: &str) -> Result<Vec<u8>, Mistake> {
    files::read(folder, name).map_err(explain)
}

/// Its weights, from one file or several.
pub(in crate::cli::swarm) fn weights(folder: &Path) -> Result<WeightFiles, Mistake> {
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
