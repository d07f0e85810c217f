//! A path in the format of `transformers`: `config.json` and `model.safetensors`.
//!
//! A path with learned positions is a GPT-2; one with rotary positions is a GPT-NeoX without parallel residuals. They
//! compute the same, weight by weight. Both always have biases, which are zero if the path has none. They cannot
//! express a head width other than the model's width divided by the heads.
//!
//! [`settings`] reads and writes `config.json`; [`tensors`] maps names and layouts of tensors.

pub mod settings;
pub mod tensors;

use std::collections::HashMap;

use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView, serialize};

use crate::config::{LevelConfig, ModelConfig, Positions, TensorSpec, level_tensors};
use tensors::{Theirs, theirs};

/// The equivalent model of `transformers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Learned positions.
    Gpt2,
    /// Rotary positions.
    GptNeox,
}

impl Layout {
    pub fn of(model: &ModelConfig) -> Self {
        match model.positions {
            Positions::Learned => Self::Gpt2,
            Positions::Rotary => Self::GptNeox,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HuggingFaceError {
    #[error(
        "head_width = {head_width} is not width / heads = {width} / {heads}: GPT-2 and GPT-NeoX cannot express this"
    )]
    HeadWidth { head_width: usize, width: usize, heads: usize },
    #[error("[model.directional] has no counterpart: neither GPT-2 nor GPT-NeoX routes directions of its heads")]
    Directional,
    #[error("[model.images] has no counterpart: GPT-2 and GPT-NeoX read text")]
    Images,
    #[error("architecture = \"dna\" has no counterpart: in GPT-2 and GPT-NeoX every token goes through every block")]
    Dna,
    #[error("config.json: {key} = {found}, this program knows {known}")]
    Setting { key: &'static str, found: String, known: &'static str },
    #[error("config.json: {0}")]
    Json(#[from] serde_json::Error),
    #[error("config.json: {0}")]
    Model(#[from] crate::config::ModelError),
    #[error("safetensors: {0}")]
    Format(#[from] SafeTensorError),
    #[error("tensor {name} is {found}, config.json makes it {expected:?} of f32, f16 or bf16")]
    Tensor { name: String, found: String, expected: Vec<usize> },
    #[error("tensor {0} has values that are not finite")]
    NotFinite(String),
    #[error("level {level} has {found} values, the model needs {expected}")]
    Level { level: usize, found: usize, expected: usize },
}

/// `model.safetensors` of a path: `values` are its levels' flat buffers.
pub fn weights(model: &ModelConfig, levels: &[LevelConfig], values: &[Vec<f32>]) -> Result<Vec<u8>, HuggingFaceError> {
    settings::has_counterpart(model)?;
    let ours = by_name(model, levels, values)?;
    let with_biases = ModelConfig { biases: true, ..model.clone() };
    let mut tensors: Vec<(Theirs, Vec<u8>)> = Vec::new();
    for tensor in model.parts().into_iter().flat_map(|part| with_biases.tensors(part)) {
        let zeros = || vec![0.0; tensor.count()];
        let values = ours.get(tensor.name.as_str()).map_or_else(zeros, |values| values.to_vec());
        let Some(theirs) = theirs(model, &tensor) else { continue };
        let bytes = theirs.from_ours(&values).into_iter().flat_map(f32::to_le_bytes).collect();
        tensors.push((theirs, bytes));
    }
    let views = tensors
        .iter()
        .map(|(theirs, bytes)| Ok((&theirs.name, TensorView::new(Dtype::F32, theirs.shape.clone(), bytes)?)))
        .collect::<Result<Vec<_>, SafeTensorError>>()?;
    // `transformers` does not load a file without this metadata.
    Ok(serialize(views, Some(HashMap::from([("format".to_owned(), "pt".to_owned())])))?)
}

/// The values of each tensor by its name here.
fn by_name<'a>(
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

/// The flat buffers of a model's levels, from the safetensors files of a folder.
pub fn levels(
    model: &ModelConfig,
    levels: &[LevelConfig],
    files: &[Vec<u8>],
) -> Result<Vec<Vec<f32>>, HuggingFaceError> {
    let files = files.iter().map(|bytes| SafeTensors::deserialize(bytes)).collect::<Result<Vec<_>, _>>()?;
    let level = |level: &LevelConfig| {
        let tensors = level_tensors(model, level);
        let values = tensors.iter().map(|tensor| read(model, tensor, &files)).collect::<Result<Vec<_>, _>>()?;
        Ok(values.concat())
    };
    levels.iter().map(level).collect()
}

fn read(model: &ModelConfig, ours: &TensorSpec, files: &[SafeTensors]) -> Result<Vec<f32>, HuggingFaceError> {
    let missing = || SafeTensorError::TensorNotFound(ours.name.clone());
    let theirs = theirs(model, ours).ok_or_else(missing)?;
    let view = files.iter().find_map(|file| theirs.names().find_map(|name| file.tensor(name).ok()));
    let view = view.ok_or_else(|| SafeTensorError::TensorNotFound(theirs.name.clone()))?;
    let unfit = || HuggingFaceError::Tensor {
        name: theirs.name.clone(),
        found: format!("{:?} {:?}", view.dtype(), view.shape()),
        expected: theirs.shape.clone(),
    };
    if view.shape() != theirs.shape {
        return Err(unfit());
    }
    let halves = || view.data().as_chunks::<2>().0.iter();
    let values: Vec<f32> = match view.dtype() {
        Dtype::F32 => view.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        Dtype::F16 => halves().map(|bytes| half::f16::from_le_bytes(*bytes).to_f32()).collect(),
        Dtype::BF16 => halves().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect(),
        _ => return Err(unfit()),
    };
    if values.iter().any(|value| !value.is_finite()) {
        return Err(HuggingFaceError::NotFinite(theirs.name));
    }
    Ok(theirs.to_ours(&values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Activation;
    use crate::model::samples::{small_levels, small_model};

    fn numbered(model: &ModelConfig) -> Vec<Vec<f32>> {
        let mut number = 0.0;
        let mut next = || {
            number += 1.0;
            number
        };
        let count = |level| level_tensors(model, level).iter().map(TensorSpec::count).sum::<usize>();
        small_levels().iter().map(|level| (0..count(level)).map(|_| next()).collect()).collect()
    }

    #[test]
    fn a_path_comes_back_as_it_went_in_either_layout() {
        for positions in [Positions::Learned, Positions::Rotary] {
            for (biases, activation) in [(false, Activation::Gelu), (true, Activation::GeluTanh)] {
                let model = ModelConfig { positions, biases, activation, ..small_model() };
                let values = numbered(&model);
                let file = weights(&model, &small_levels(), &values).unwrap();
                assert_eq!(levels(&model, &small_levels(), std::slice::from_ref(&file)).unwrap(), values);
                let config = settings::write(&model, 0).unwrap();
                assert_eq!(settings::read(&config).unwrap(), model);
                let all = ModelConfig { biases: true, ..model };
                let with_biases = levels(&all, &small_levels(), &[file]).unwrap();
                assert!(biases || with_biases.concat().iter().filter(|value| **value == 0.0).count() > 0);
            }
        }
    }

    #[test]
    fn halves_are_read_and_what_does_not_fit_is_refused_by_name() {
        let model = ModelConfig { positions: Positions::Learned, ..small_model() };
        let file = weights(&model, &small_levels(), &numbered(&model)).unwrap();
        let wider = ModelConfig { feed_forward: Some(12), ..model.clone() };
        let unfit = levels(&wider, &small_levels(), std::slice::from_ref(&file)).unwrap_err().to_string();
        assert!(unfit.contains("mlp.c_fc.weight") && unfit.contains("[16, 12]"), "{unfit}");
        let deeper = levels(&model, &small_levels(), &[]).unwrap_err().to_string();
        assert!(deeper.contains("transformer.wte.weight"), "{deeper}");
        let short = weights(&model, &small_levels(), &[vec![0.0], vec![]]).unwrap_err().to_string();
        assert!(short.contains("level 0 has 1 values"), "{short}");

        let tokens = [model.vocabulary, model.width];
        let ones: Vec<u8> = (0..tokens[0] * tokens[1]).flat_map(|_| half::bf16::ONE.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::BF16, tokens.to_vec(), &ones).unwrap();
        // OpenAI's own file has names without the prefix of the model.
        let halves = serialize([("wte.weight", view)], None).unwrap();
        let read = levels(&model, &small_levels(), &[halves, file]).unwrap();
        assert_eq!(read[0][..tokens[0] * tokens[1]], vec![1.0; tokens[0] * tokens[1]]);
    }
}
