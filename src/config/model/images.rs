//! Networks that read images, `[model.images]`.
//!
//! Outside the first and last part of the network, an image is a document: the bytes of its red, green and blue plane,
//! row by row, followed by its class. So `context` is the number of bytes of an image, `vocabulary` the number of
//! classes, and the last token of each sequence is predicted.

use serde::{Deserialize, Serialize};

use crate::config::key_error::{KeyError, require};
use crate::config::model::parts::{Initial, TensorList};
use crate::config::model::{ModelConfig, Positions};

/// Red, green and blue.
const PLANES: usize = 3;

/// The 256 byte values and the end-of-document token of the byte tokenizer.
const BYTE_IDS: usize = 257;

/// `[model.images]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImagesConfig {
    /// Side of the square patches of an image, in pixels. A patch is what the literature calls a token.
    pub patch: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    Text,
    Images {
        /// Pixels per side.
        side: usize,
        classes: usize,
    },
}

impl ModelConfig {
    pub fn reads_images(&self) -> bool {
        self.images.is_some()
    }

    pub fn reads(&self) -> Reads {
        if !self.reads_images() {
            return Reads::Text;
        }
        Reads::Images { side: self.side(), classes: self.vocabulary }
    }

    /// Number of token ids in sequences: the vocabulary, or bytes and classes.
    pub fn ids(&self) -> usize {
        if self.reads_images() { self.vocabulary.max(BYTE_IDS) } else { self.vocabulary }
    }

    /// Pixels per side of an image.
    pub fn side(&self) -> usize {
        (self.context / PLANES).isqrt()
    }

    /// Positions in the network for a sequence of `tokens` tokens: one for each token, or one for each patch.
    pub fn stream_length(&self, tokens: usize) -> usize {
        self.images.map_or(tokens, |images| (self.side() / images.patch.max(1)).pow(2))
    }

    pub(in crate::config) fn check_images(&self) -> Result<(), KeyError> {
        let Some(ImagesConfig { patch }) = self.images else { return Ok(()) };
        let side = self.side();
        let expected = "for images it must be their bytes, 3 * side * side, such as 3072 for 32 pixels a side";
        require(PLANES * side * side == self.context, "model.context", self.context, expected)?;
        let divides = patch > 0 && side.is_multiple_of(patch);
        require(divides, "model.images.patch", patch, format!("must divide the side of {side} pixels"))?;
        let learned = self.positions == Positions::Learned;
        require(learned, "model.positions", "\"rotary\"", "for images it must be \"learned\"")?;
        require(!self.tied_head, "model.tied_head", true, "for images it must be false")?;
        require(self.directional.is_none(), "model.directional", "{ … }", "for images it must be left out")
    }

    /// The tensors of the patch embedding:
    ///
    /// - `embedding.patches.weight`, `[width, 3 · patch · patch]`: of a patch's planes, row by row. It starts as PyTorch's
    ///   convolutions do, whatever `initial_deviation` says (DNA paper, appendix A.1);
    /// - `embedding.positions.weight`, `[patches, width]`.
    pub(in crate::config) fn patch_tensors(&self, images: ImagesConfig, positions: Initial, list: &mut TensorList) {
        let inputs = PLANES * images.patch.pow(2);
        let initial = Initial::Uniform(1.0 / (inputs.max(1) as f64).sqrt());
        list.linear("patches", [self.width, inputs], initial, self.biases.elsewhere());
        list.add("positions.weight", &[self.stream_length(self.context), self.width], positions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::config::run::tests::SMALL;

    fn model() -> ModelConfig {
        let model = RunConfig::from_toml(SMALL).unwrap().model;
        ModelConfig {
            vocabulary: 10,
            context: 3 * 32 * 32,
            positions: Positions::Learned,
            images: Some(ImagesConfig { patch: 4 }),
            ..model
        }
    }

    #[test]
    fn an_image_is_its_patches() {
        let model = model();
        assert_eq!(model.check(), Ok(()));
        assert_eq!((model.side(), model.stream_length(3072), model.ids()), (32, 64, 257));
        let names: Vec<_> =
            model.tensors(crate::config::Part::Embedding).into_iter().map(|t| (t.name, t.shape)).collect();
        let expected = [("embedding.patches.weight", vec![16, 48]), ("embedding.positions.weight", vec![64, 16])];
        assert_eq!(names, expected.map(|(name, shape)| (name.to_owned(), shape)));
    }

    #[test]
    fn what_is_no_image_is_refused_in_words() {
        let error = |change: fn(&mut ModelConfig)| {
            let mut model = model();
            change(&mut model);
            model.check().unwrap_err().to_string()
        };
        assert!(error(|model| model.context = 3000).contains("3 * side * side"));
        assert!(error(|model| model.images = Some(ImagesConfig { patch: 5 })).contains("divide the side of 32"));
        assert!(error(|model| model.images = Some(ImagesConfig { patch: 0 })).contains("patch = 0"));
        assert!(error(|model| model.positions = Positions::Rotary).starts_with("model.positions = \"rotary\": "));
        assert!(error(|model| model.tied_head = true).starts_with("model.tied_head = true: "));
        assert!(error(|model| model.vocabulary = 1).contains("2 to"));
    }
}
