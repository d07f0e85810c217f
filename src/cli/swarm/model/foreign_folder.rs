//! A folder that `transformers` writes or reads.

use std::path::Path;

use crate::cli::swarm::mistake::{Mistake, OrMistake};

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
    let path = folder.join(name);
    std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display())).or_mistake(
        "give a folder with config.json, model.safetensors and tokenizer.json, as save_pretrained writes it",
    )
}

/// All its safetensors files: large models are divided into several.
pub(in crate::cli::swarm) fn weights(folder: &Path) -> Result<Vec<Vec<u8>>, Mistake> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()));
    let entries = entries.or_mistake("give a folder with a model that transformers has saved")?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".safetensors"))
        .collect();
    names.sort();
    if names.is_empty() {
        return Err(Mistake::new(format!("{} has no safetensors file", folder.display()))
            .hint("save the model with save_pretrained(…, safe_serialization=True)"));
    }
    names.iter().map(|name| read(folder, name)).collect()
}
