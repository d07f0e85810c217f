//! The files of a folder that `transformers` has written: which of them have the weights, and what is in the way.
//!
//! As `transformers` does, `model.safetensors` is read if it is there, else the shards that
//! `model.safetensors.index.json` lists. No tensor may be in two of the files that are read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use safetensors::tensor::SafeTensors;
use serde::Deserialize;

/// All weights in one file.
pub const SINGLE: &str = "model.safetensors";
/// Which shard has which tensor.
pub const INDEX: &str = "model.safetensors.index.json";

/// Begins a file that Git LFS has not fetched.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error(
        "{} is a pointer of Git LFS, not the file itself; run `git lfs pull` in that folder, or download the file",
        .0.display()
    )]
    Pointer(PathBuf),
    #[error(
        "{} has neither {SINGLE} nor {INDEX}{}; download what is missing, or save the model with \
         save_pretrained(…, safe_serialization=True)", folder.display(), others(found)
    )]
    None { folder: PathBuf, found: Vec<String> },
    #[error("{}: {reason}; download the index again, or save the model anew", path.display())]
    Index { path: PathBuf, reason: String },
    #[error("{}: not a safetensors file: {source}", path.display())]
    Format { path: PathBuf, source: safetensors::SafeTensorError },
    #[error(
        "{}: tensor {tensor} is in {first} and in {second}, which may be of two models; keep the files of one",
        folder.display()
    )]
    Twice { folder: PathBuf, tensor: String, first: String, second: String },
    #[error(
        "{}: {INDEX} says that tensor {tensor} is in {listed}, {found}; the shards and the index may be of two models: \
         keep the files of one", folder.display()
    )]
    Elsewhere { folder: PathBuf, tensor: String, listed: String, found: String },
}

fn others(found: &[String]) -> String {
    if found.is_empty() { String::new() } else { format!(", only {}", found.join(", ")) }
}

/// The weights of a folder.
pub struct WeightFiles {
    /// The bytes of each file, by its name.
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// Safetensors files beside them, which are not read.
    pub unread: Vec<String>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Reads a file of the folder.
///
/// # Errors
/// If it cannot be read, or is a pointer of Git LFS.
pub fn read(folder: &Path, name: &str) -> Result<Vec<u8>, FilesError> {
    let path = folder.join(name);
    match fs::read(&path) {
        Ok(bytes) if bytes.starts_with(LFS_POINTER) => Err(FilesError::Pointer(path)),
        Ok(bytes) => Ok(bytes),
        Err(source) => Err(FilesError::Unreadable { path, source }),
    }
}

/// As [`read`]; `None` if there is no such file.
pub fn read_optional(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, FilesError> {
    match read(folder, name) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(FilesError::Unreadable { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl WeightFiles {
    /// One file with all weights.
    pub fn single(bytes: Vec<u8>) -> Self {
        Self { files: vec![(SINGLE.to_owned(), bytes)], unread: Vec::new() }
    }

    /// Reads the weights of a folder.
    pub fn in_folder(folder: &Path) -> Result<Self, FilesError> {
        let unreadable = |source| FilesError::Unreadable { path: folder.to_owned(), source };
        let mut present = BTreeSet::new();
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            present.extend(entry.map_err(unreadable)?.file_name().into_string());
        }
        let names = if present.contains(SINGLE) {
            vec![SINGLE.to_owned()]
        } else if present.contains(INDEX) {
            let index = read_index(folder)?;
            let shards: BTreeSet<&String> = index.values().collect();
            let files: Vec<String> = shards.into_iter().cloned().collect();
            let read = Self::read_all(folder, &files, &present)?;
            read.check_index(folder, &index)?;
            return Ok(read);
        } else {
            let weights =
                |name: &&String| [".safetensors", ".bin", ".pt", ".gguf"].iter().any(|end| name.ends_with(end));
            let found = present.iter().filter(weights).cloned().collect();
            return Err(FilesError::None { folder: folder.to_owned(), found });
        };
        Self::read_all(folder, &names, &present)
    }

    fn read_all(folder: &Path, names: &[String], present: &BTreeSet<String>) -> Result<Self, FilesError> {
        let files: Vec<(String, Vec<u8>)> =
            names.iter().map(|name| Ok((name.clone(), read(folder, name)?))).collect::<Result<_, FilesError>>()?;
        for (name, bytes) in &files {
            let path = || folder.join(name);
            SafeTensors::deserialize(bytes).map_err(|source| FilesError::Format { path: path(), source })?;
        }
        let is_unread = |name: &&String| name.ends_with(".safetensors") && !names.contains(name);
        let unread = present.iter().filter(is_unread).cloned().collect();
        Ok(Self { files, unread })
    }

    /// Whether index and shards agree about every tensor.
    fn check_index(&self, folder: &Path, index: &BTreeMap<String, String>) -> Result<(), FilesError> {
        let mut places: BTreeMap<String, &str> = BTreeMap::new();
        for (file, bytes) in &self.files {
            // The headers have been read before.
            let header = SafeTensors::read_metadata(bytes).map(|(_, header)| header);
            for tensor in header.iter().flat_map(|header| header.tensors().into_keys()) {
                if let Some(first) = places.insert(tensor.clone(), file) {
                    let (folder, first, second) = (folder.to_owned(), first.to_owned(), file.clone());
                    return Err(FilesError::Twice { folder, tensor, first, second });
                }
            }
        }
        for (tensor, listed) in index {
            let found = match places.get(tensor) {
                Some(found) if found == listed => continue,
                Some(found) => format!("and it is in {found}"),
                None => "and it is not".to_owned(),
            };
            let (folder, tensor, listed) = (folder.to_owned(), tensor.clone(), listed.clone());
            return Err(FilesError::Elsewhere { folder, tensor, listed, found });
        }
        Ok(())
    }
}

fn read_index(folder: &Path) -> Result<BTreeMap<String, String>, FilesError> {
    let bad = |reason: String| FilesError::Index { path: folder.join(INDEX), reason };
    let index: Index = serde_json::from_slice(&read(folder, INDEX)?).map_err(|error| bad(error.to_string()))?;
    if index.weight_map.is_empty() {
        return Err(bad("weight_map is empty".to_owned()));
    }
    let is_plain = |name: &&String| Path::new(name.as_str()).file_name().is_some_and(|own| own == name.as_str());
    match index.weight_map.values().find(|name| !is_plain(name)) {
        Some(name) => Err(bad(format!("weight_map names {name:?}, which is not a file of this folder"))),
        None => Ok(index.weight_map),
    }
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::{Dtype, TensorView, serialize};

    use super::*;

    /// A file with these tensors of one value.
    fn tensors(names: &[&str]) -> Vec<u8> {
        let value = 1f32.to_le_bytes();
        let view = || TensorView::new(Dtype::F32, vec![1], &value).unwrap();
        serialize(names.iter().map(|name| ((*name).to_owned(), view())), None).unwrap()
    }

    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, bytes)| fs::write(folder.path().join(name), bytes).unwrap());
        folder
    }

    fn refused(files: &[(&str, &[u8])]) -> String {
        WeightFiles::in_folder(folder(files).path()).err().unwrap().to_string()
    }

    fn index(places: &[(&str, &str)]) -> Vec<u8> {
        let map: BTreeMap<_, _> = places.iter().copied().collect();
        serde_json::to_vec(&serde_json::json!({ "metadata": {}, "weight_map": map })).unwrap()
    }

    #[test]
    fn the_index_says_which_shards_are_read_and_a_single_file_comes_before_it() {
        let (a, b, old) = (tensors(&["a"]), tensors(&["b"]), tensors(&["a", "b"]));
        let listed = index(&[("a", "model-1.safetensors"), ("b", "model-2.safetensors")]);
        let shards: [(&str, &[u8]); 4] =
            [("model-1.safetensors", &a), ("model-2.safetensors", &b), ("stale.safetensors", &old), (INDEX, &listed)];
        let read = WeightFiles::in_folder(folder(&shards).path()).unwrap();
        assert_eq!(read.files.iter().map(|(name, _)| name).collect::<Vec<_>>(), [shards[0].0, shards[1].0]);
        assert_eq!(read.unread, ["stale.safetensors"]);
        let both = folder(&[&shards[..], &[(SINGLE, &old[..])]].concat());
        let read = WeightFiles::in_folder(both.path()).unwrap();
        assert_eq!(read.files[0].0, SINGLE);
        assert_eq!(read.unread.len(), 3);
    }

    #[test]
    fn shards_of_two_models_are_never_mixed() {
        let (a, ab, b) = (tensors(&["a"]), tensors(&["a", "b"]), tensors(&["b"]));
        let listed = index(&[("a", "1.safetensors"), ("b", "2.safetensors")]);
        let twice = refused(&[("1.safetensors", &a), ("2.safetensors", &ab), (INDEX, &listed)]);
        assert!(twice.contains("tensor a is in 1.safetensors and in 2.safetensors"), "{twice}");
        let lacking = refused(&[("1.safetensors", &a), ("2.safetensors", &tensors(&["c"])), (INDEX, &listed)]);
        assert!(lacking.contains("tensor b is in 2.safetensors, and it is not"), "{lacking}");
        let swapped = refused(&[("1.safetensors", &b), ("2.safetensors", &a), (INDEX, &listed)]);
        assert!(swapped.contains("tensor a is in 1.safetensors, and it is in 2.safetensors"), "{swapped}");
        assert!(refused(&[("1.safetensors", &a), (INDEX, &listed)]).contains("2.safetensors: No such file"));
        let alone = refused(&[("model-1.safetensors", &a), ("pytorch_model.bin", b"")]);
        assert!(alone.contains("only model-1.safetensors, pytorch_model.bin"), "{alone}");
        let outside = index(&[("a", "../1.safetensors")]);
        assert!(refused(&[(INDEX, &outside)]).contains("../1.safetensors"));
        assert!(refused(&[(INDEX, b"{\"weight_map\": {}}")]).contains("weight_map is empty"));
        assert!(refused(&[(INDEX, b"{}")]).contains("weight_map"));
        assert!(refused(&[(SINGLE, b"nothing")]).contains("not a safetensors file"));
    }

    #[test]
    fn a_file_that_git_lfs_has_not_fetched_is_named() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
        let refused = refused(&[(SINGLE, pointer)]);
        assert!(refused.contains("model.safetensors is a pointer of Git LFS"), "{refused}");
        let folder = folder(&[("config.json", pointer)]);
        assert!(read(folder.path(), "config.json").unwrap_err().to_string().contains("git lfs pull"));
        assert!(read_optional(folder.path(), "generation_config.json").unwrap().is_none());
    }
}
