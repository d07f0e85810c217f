//! Values of tensors, from the files of `transformers` to the levels of a path and back.

use std::collections::{BTreeSet, HashMap};

use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView, serialize};

use super::files::WeightFiles;
use super::tensors::{Theirs, is_buffer, theirs};
use super::{HuggingFaceError, Layout};
use crate::config::{LevelConfig, ModelConfig, TensorSpec, level_tensors};

/// `model.safetensors` of a path: `values` are its levels' flat buffers.
pub fn weights(model: &ModelConfig, levels: &[LevelConfig], values: &[Vec<f32>]) -> Result<Vec<u8>, HuggingFaceError> {
    let layout = Layout::of(model)?;
    let ours = by_name(model, levels, values)?;
    let mut tensors: Vec<(Theirs, Vec<u8>)> = Vec::new();
    for tensor in written(layout, model) {
        let zeros = || vec![0.0; tensor.count()];
        let values = ours.get(tensor.name.as_str()).map_or_else(zeros, |values| values.to_vec());
        let mut rest = values.as_slice();
        for theirs in theirs(layout, model, &tensor).into_iter().flatten() {
            let (own, after) = rest.split_at(theirs.count());
            rest = after;
            let bytes = theirs.from_ours(own).into_iter().flat_map(f32::to_le_bytes).collect();
            tensors.push((theirs, bytes));
        }
    }
    let views = tensors
        .iter()
        .map(|(theirs, bytes)| Ok((&theirs.name, TensorView::new(Dtype::F32, theirs.shape.clone(), bytes)?)))
        .collect::<Result<Vec<_>, SafeTensorError>>()?;
    // `transformers` does not load a file without this metadata.
    Ok(serialize(views, Some(HashMap::from([("format".to_owned(), "pt".to_owned())])))?)
}

/// The tensors with which a model is written, also those that are zero because it lacks them.
fn written(layout: Layout, model: &ModelConfig) -> Vec<TensorSpec> {
    let with_biases = ModelConfig { biases: layout.biases(model), ..model.clone() };
    model.parts().into_iter().flat_map(|part| with_biases.tensors(part)).collect()
}

/// The values of each tensor by its name here.
pub(super) fn by_name<'a>(
    model: &ModelConfig,
    levels: &[LevelConfig],
    values: &'a [Vec<f32>],
) -> Result<HashMap<String, &'a [f32]>, HuggingFaceError> {
    let mut ours = HashMap::new();
    for (level, config) in levels.iter().enumerate() {
        let tensors = level_tensors(model, config);
        let expected = tensors.iter().map(TensorSpec::count).sum();
        let mut rest = values.get(level).map_or(&[][..], Vec::as_slice);
        if rest.len() != expected {
            return Err(HuggingFaceError::Level { level, found: rest.len(), expected });
        }
        for tensor in tensors {
            let (own, after) = rest.split_at(tensor.count());
            rest = after;
            ours.insert(tensor.name, own);
        }
    }
    Ok(ours)
}

/// The flat buffers of a model's levels, from its files.
///
/// # Errors
/// If a tensor is missing or does not fit, or if the files have one that the model does not read.
pub fn levels(
    model: &ModelConfig,
    levels: &[LevelConfig],
    files: &WeightFiles,
) -> Result<Vec<Vec<f32>>, HuggingFaceError> {
    let mut reader = Reader::of(model, files)?;
    let mut all = Vec::with_capacity(levels.len());
    for level in levels {
        let mut values = Vec::new();
        for tensor in level_tensors(model, level) {
            reader.append(&tensor, &mut values)?;
        }
        all.push(values);
    }
    reader.check_rest()?;
    Ok(all)
}

/// The tensors of some files, and which of them have been read.
struct Reader<'a> {
    model: &'a ModelConfig,
    layout: Layout,
    files: Vec<(&'a str, SafeTensors<'a>)>,
    read: BTreeSet<String>,
    /// The name under which they have the embedding.
    embedding: Option<String>,
}

impl<'a> Reader<'a> {
    fn of(model: &'a ModelConfig, files: &'a WeightFiles) -> Result<Self, HuggingFaceError> {
        let files = files.files.iter().map(|(name, bytes)| Ok((name.as_str(), SafeTensors::deserialize(bytes)?)));
        let files = files.collect::<Result<Vec<_>, SafeTensorError>>()?;
        Ok(Self { model, layout: Layout::of(model)?, files, read: BTreeSet::new(), embedding: None })
    }

    fn find(&self, name: &str) -> Option<(&'a str, TensorView<'_>)> {
        self.files.iter().find_map(|(file, tensors)| Some((*file, tensors.tensor(name).ok()?)))
    }

    /// The name under which the files have a tensor: its own, one without a prefix, or, of a tied embedding, the head's.
    fn name_of(&self, theirs: &Theirs, ours: &TensorSpec) -> Option<String> {
        let head = (self.model.tied_head && ours.name == "embedding.tokens.weight").then(|| self.layout.head());
        theirs.names().map(str::to_owned).chain(head).find(|name| self.find(name).is_some())
    }

    /// Appends the values of one of our tensors.
    fn append(&mut self, ours: &TensorSpec, values: &mut Vec<f32>) -> Result<(), HuggingFaceError> {
        let missing = || HuggingFaceError::Missing { tensor: ours.name.clone(), hint: "" };
        for theirs in theirs(self.layout, self.model, ours).ok_or_else(missing)? {
            let name = self.name_of(&theirs, ours).ok_or_else(|| {
                let is_head = ours.name == "head.weight";
                let hint = if is_head { "; if the head is the embedding, set tie_word_embeddings = true" } else { "" };
                HuggingFaceError::Missing { tensor: theirs.name.clone(), hint }
            })?;
            let Some((file, view)) = self.find(&name) else { return Err(missing()) };
            let read = to_f32(&view);
            let read = read.filter(|_| view.shape() == theirs.shape).ok_or_else(|| HuggingFaceError::Tensor {
                file: file.to_owned(),
                name: name.clone(),
                found: format!("{:?} {:?}", view.dtype(), view.shape()),
                expected: theirs.shape.clone(),
            })?;
            if read.iter().any(|value| !value.is_finite()) {
                return Err(HuggingFaceError::NotFinite { file: file.to_owned(), name });
            }
            values.extend(theirs.to_ours(&read));
            if ours.name == "embedding.tokens.weight" {
                self.embedding = Some(name.clone());
            }
            self.read.insert(name);
        }
        Ok(())
    }

    /// Refuses files that have more than the model: another layer, a head that is not the embedding.
    fn check_rest(&self) -> Result<(), HuggingFaceError> {
        let zero: BTreeSet<String> = written(self.layout, self.model)
            .iter()
            .flat_map(|tensor| theirs(self.layout, self.model, tensor))
            .flatten()
            .flat_map(|theirs| theirs.names().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        for (file, tensors) in &self.files {
            for (name, view) in tensors.iter().filter(|(name, _)| !self.read.contains(*name) && !is_buffer(name)) {
                let (file, name) = ((*file).to_owned(), name.to_owned());
                if self.model.tied_head && name == self.layout.head() {
                    self.check_tied(file, name, &view)?;
                    continue;
                }
                // A bias that an export has added.
                let is_zero = || to_f32(&view).is_some_and(|values| values.iter().all(|value| *value == 0.0));
                if !(zero.contains(&name) && is_zero()) {
                    return Err(HuggingFaceError::Unread { file, name, blocks: self.model.blocks });
                }
            }
        }
        Ok(())
    }

    fn check_tied(&self, file: String, name: String, head: &TensorView<'_>) -> Result<(), HuggingFaceError> {
        let embedding = self.embedding.as_ref().and_then(|name| Some(self.find(name)?.1));
        let same = embedding.is_some_and(|own| own.shape() == head.shape() && to_f32(&own) == to_f32(head));
        if same { Ok(()) } else { Err(HuggingFaceError::Untied { file, name }) }
    }
}

/// The values of a tensor of f32, f16 or bf16.
fn to_f32(view: &TensorView<'_>) -> Option<Vec<f32>> {
    let halves = || view.data().as_chunks::<2>().0.iter();
    match view.dtype() {
        Dtype::F32 => Some(view.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()),
        Dtype::F16 => Some(halves().map(|bytes| half::f16::from_le_bytes(*bytes).to_f32()).collect()),
        Dtype::BF16 => Some(halves().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect()),
        _ => None,
    }
}

#[cfg(test)]
#[path = "weights_tests.rs"]
mod tests;
