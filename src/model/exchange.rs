//! Parameters as safetensors files for other tools, with each tensor under its own name.

use std::collections::HashMap;

use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView, serialize};

use crate::config::{LevelConfig, ModelConfig, TensorSpec, frozen_parts, level_tensors};

#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Not a safetensors file, or a tensor of the model is missing.
    #[error("safetensors: {0}")]
    Format(#[from] SafeTensorError),
    #[error("tensor {name} is {found}, the model needs f32 {expected:?}")]
    Tensor { name: String, found: String, expected: Vec<usize> },
    #[error("tensor {0} has values that are not finite")]
    NotFinite(String),
    #[error("it has adapters (tensor {0}), and this run has none, so that what they have learnt would be lost")]
    Adapter(String),
}

/// A file of some levels' flat buffers, with metadata.
pub fn encode(
    model: &ModelConfig,
    levels: &[(&LevelConfig, &[f32])],
    notes: &[(&str, String)],
) -> Result<Vec<u8>, ExchangeError> {
    let mut bytes: Vec<(TensorSpec, Vec<u8>)> = Vec::new();
    for (level, values) in levels {
        let mut rest = *values;
        for tensor in level_tensors(model, level) {
            let (own, after) = rest.split_at(tensor.count().min(rest.len()));
            rest = after;
            bytes.push((tensor, own.iter().flat_map(|value| value.to_le_bytes()).collect()));
        }
    }
    let views = bytes
        .iter()
        .map(|(tensor, bytes)| Ok((&tensor.name, TensorView::new(Dtype::F32, tensor.shape.clone(), bytes)?)))
        .collect::<Result<Vec<_>, SafeTensorError>>()?;
    let notes: HashMap<String, String> = notes.iter().map(|(key, note)| ((*key).to_owned(), note.clone())).collect();
    Ok(serialize(views, (!notes.is_empty()).then_some(notes))?)
}

/// The flat buffer of a level, from a file with its tensors. The file may have more.
pub fn decode_level(bytes: &[u8], model: &ModelConfig, level: &LevelConfig) -> Result<Vec<f32>, ExchangeError> {
    decode_level_from(&[bytes], model, level)
}

/// The same from several files that together have the tensors, since an earlier run may have had other levels.
pub fn decode_level_from(files: &[&[u8]], model: &ModelConfig, level: &LevelConfig) -> Result<Vec<f32>, ExchangeError> {
    let files = files.iter().map(|bytes| SafeTensors::deserialize(bytes)).collect::<Result<Vec<_>, _>>()?;
    let mut values = Vec::new();
    for tensor in level_tensors(model, level) {
        let found = files.iter().find_map(|file| file.tensor(&tensor.name).ok());
        let found = found.ok_or_else(|| SafeTensorError::TensorNotFound(tensor.name.clone()))?;
        if found.dtype() != Dtype::F32 || found.shape() != tensor.shape {
            let found = format!("{:?} {:?}", found.dtype(), found.shape());
            return Err(ExchangeError::Tensor { name: tensor.name, found, expected: tensor.shape });
        }
        let before = values.len();
        values.extend(found.data().as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)));
        if values[before..].iter().any(|value| !value.is_finite()) {
            return Err(ExchangeError::NotFinite(tensor.name));
        }
    }
    Ok(values)
}

/// The name of an adapter's tensor in one of these files, if there is any.
pub fn adapter_in(files: &[&[u8]]) -> Result<Option<String>, ExchangeError> {
    for bytes in files {
        let file = SafeTensors::deserialize(bytes)?;
        let adapters = file.names().into_iter().filter(|name| name.starts_with("adapter."));
        if let Some(first) = adapters.min() {
            return Ok(Some(first.to_owned()));
        }
    }
    Ok(None)
}

/// What no level of a model with adapters lists; empty without adapters.
pub fn decode_frozen(bytes: &[u8], model: &ModelConfig, levels: &[LevelConfig]) -> Result<Vec<f32>, ExchangeError> {
    frozen_parts(model, levels).map_or_else(|| Ok(Vec::new()), |frozen| decode_level(bytes, model, &frozen))
}

/// The metadata of a file, from its header: 8 bytes of length, followed by so many bytes.
pub fn notes(header: &[u8]) -> Result<HashMap<String, String>, ExchangeError> {
    #[derive(serde::Deserialize)]
    struct Header {
        #[serde(rename = "__metadata__", default)]
        notes: HashMap<String, String>,
    }
    let (length, rest) = header.split_first_chunk().ok_or(SafeTensorError::HeaderTooSmall)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| SafeTensorError::HeaderTooLarge)?;
    let text = rest.get(..length).ok_or(SafeTensorError::InvalidHeaderLength)?;
    Ok(serde_json::from_slice::<Header>(text).map_err(SafeTensorError::InvalidHeaderDeserialization)?.notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Positions;
    use crate::grid::Sharing;

    fn model() -> (ModelConfig, Vec<LevelConfig>) {
        let model =
            ModelConfig { positions: Positions::Learned, tied_head: true, ..ModelConfig::of([1, 4, 2], 258, 8) };
        let level = |parts: &[&str]| LevelConfig {
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
            sharing: Sharing::Shared,
        };
        (model, vec![level(&["embedding"]), level(&["block.0", "final-norm"])])
    }

    #[test]
    fn levels_come_back_from_one_file() {
        let (model, levels) = model();
        let counts: Vec<usize> = levels.iter().map(|level| crate::config::level_parameters(&model, level)).collect();
        let values: Vec<Vec<f32>> = counts.iter().map(|count| (0..*count).map(|i| i as f32).collect()).collect();
        let pairs: Vec<_> = levels.iter().zip(values.iter().map(Vec::as_slice)).collect();
        let file = encode(&model, &pairs, &[("version", "3".to_owned())]).unwrap();
        for (level, values) in levels.iter().zip(&values) {
            assert_eq!(&decode_level(&file, &model, level).unwrap(), values);
        }
        let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        assert_eq!(notes(&file[..header]).unwrap()["version"], "3");
        assert!(notes(&file[..header - 1]).is_err());
    }

    #[test]
    fn another_models_file_is_refused_by_name() {
        let (model, levels) = model();
        let values = vec![0.0; crate::config::level_parameters(&model, &levels[0])];
        let file = encode(&model, &[(&levels[0], &values)], &[]).unwrap();
        assert!(decode_level(&file, &model, &levels[1]).unwrap_err().to_string().contains("block.0"));
        let wider = ModelConfig { vocabulary: 259, ..model.clone() };
        assert!(matches!(decode_level(&file, &wider, &levels[0]), Err(ExchangeError::Tensor { .. })));
        assert!(decode_level(b"nothing", &model, &levels[0]).is_err());
    }
}
