//! The network of one path: tokens in, logits or hidden states out.

mod reading;

use tch::{Device, Kind, TchError, Tensor};

use crate::config::{LevelConfig, ModelConfig, Precision};
use crate::model::dna::Dna;
use crate::model::forward_error::ForwardError;
use crate::model::layers::block::{Block, Reading};
use crate::model::layers::directional::Directional;
use crate::model::layers::input::Input;
use crate::model::layers::kv_cache::Past;
use crate::model::layers::linear::{Kernel, Products};
use crate::model::layers::norm::Norm;
use crate::model::layers::packed::Packed;
use crate::model::layers::rotary::rotation;
use crate::model::layers::watch::{Unwatched, Watch, Writer};
use crate::model::weights::{Weights, WeightsError, narrow_operands};

/// A path's network and its parameters.
pub struct PathModel {
    config: ModelConfig,
    weights: Weights,
    input: Input,
    blocks: Vec<Block>,
    dna: Option<Dna>,
    norm: Norm,
    head: Tensor,
    rotation: Option<Tensor>,
    products: Products,
    /// The blocks before which caches keep the stream ([reading]).
    kept: Vec<usize>,
}

impl PathModel {
    /// A network with all parameters zero until its levels are set.
    ///
    /// `precision` is that of training. Logits, hidden states and features are always computed in f32, so that machines
    /// agree on routes and scores.
    pub fn new(
        model: &ModelConfig,
        levels: &[LevelConfig],
        device: Device,
        precision: Precision,
    ) -> Result<Self, WeightsError> {
        let weights = Weights::keeping(model, levels, device, precision)?;
        let products = Products { kernel: Kernel::for_device(device), precision };
        Self::of(weights, model, (products, rotation(model, device)?))
    }

    fn of(
        weights: Weights,
        model: &ModelConfig,
        (products, rotation): (Products, Option<Tensor>),
    ) -> Result<Self, WeightsError> {
        let head = if model.tied_head { "embedding.tokens.weight" } else { "head.weight" };
        Ok(Self {
            input: Input::new(&weights, model)?,
            blocks: (0..model.blocks).map(|index| Block::new(&weights, index, model)).collect::<Result<_, _>>()?,
            dna: Dna::new(&weights, model)?,
            norm: Norm::new(&weights, "final-norm", model)?,
            head: weights.tensor(head)?,
            rotation,
            products,
            config: model.clone(),
            weights,
            kept: Vec::new(),
        })
    }

    /// The same network with the operands of its products in bfloat16, for the micro-batches of a step: each weight is
    /// converted once, and gradients go through the conversion to the weights of this one. `None` where products are not
    /// in bfloat16, or the network is not one of [`narrow_operands`].
    pub(crate) fn narrowed(&self) -> Result<Option<Self>, WeightsError> {
        if self.products.precision != Precision::Bf16 || !narrow_operands(&self.config) {
            return Ok(None);
        }
        let rotation = self.rotation.as_ref().map(Tensor::shallow_clone);
        let narrow = Self::of(self.weights.narrowed()?, &self.config, (self.products, rotation))?;
        Ok(Some(Self { head: self.head.f_to_kind(Kind::BFloat16)?, ..narrow }))
    }

    /// The model's sizes.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    pub fn device(&self) -> Device {
        self.weights.device()
    }

    /// Number of parameters of each level.
    pub fn level_sizes(&self) -> Vec<usize> {
        self.weights.sizes()
    }

    /// Copies values into a level.
    pub fn set_level(&mut self, level: usize, values: &[f32]) -> Result<(), WeightsError> {
        self.weights.set(level, values)
    }

    /// A level's values.
    pub fn level(&self, level: usize) -> Result<Vec<f32>, WeightsError> {
        self.weights.get(level)
    }

    /// Whether the parts that no level lists have been set, if there are any.
    pub fn is_complete(&self) -> bool {
        self.weights.is_complete()
    }

    /// Copies the values of the parts that no level lists.
    pub fn set_frozen(&mut self, values: &[f32]) -> Result<(), WeightsError> {
        self.weights.set_frozen(values)
    }

    /// Logits of the next token at each position: `[batch, time]` to `[batch, time, vocabulary]`, f32, without
    /// gradient. For images, logits of the class, `[batch, 1, vocabulary]`.
    pub fn logits(&self, tokens: &Tensor) -> Result<Tensor, ForwardError> {
        let _no_gradient = tch::no_grad_guard();
        let hidden = self.hidden(tokens)?;
        Ok(self.exact().linear(&hidden, &self.head, None)?)
    }

    /// Hidden states after the final norm: `[batch, time]` to `[batch, time, width]`, f32, without gradient. For an
    /// image, the mean over its patches, `[batch, 1, width]`.
    pub fn hidden(&self, tokens: &Tensor) -> Result<Tensor, ForwardError> {
        let _no_gradient = tch::no_grad_guard();
        self.check(tokens)?;
        Ok(self.trunk(&tokens.f_to_device(self.device())?, None, &self.exact())?)
    }

    /// As [`PathModel::hidden`], with a watch.
    pub fn watched(&self, tokens: &Tensor, watch: &dyn Watch) -> Result<Tensor, ForwardError> {
        let _no_gradient = tch::no_grad_guard();
        self.check(tokens)?;
        Ok(self.trunk_after(&tokens.f_to_device(self.device())?, (None, watch), &self.exact(), None)?)
    }

    pub(super) fn check(&self, tokens: &Tensor) -> Result<(), ForwardError> {
        let shape = tokens.size();
        let kind = tokens.f_kind()?;
        if !self.weights.is_complete() {
            return Err(ForwardError::NotComplete);
        }
        if shape.len() != 2 || kind != Kind::Int64 || shape.contains(&0) {
            return Err(ForwardError::Shape { kind, shape });
        }
        let (found, context) = (shape[1] as usize, self.config.context);
        if found > context {
            return Err(ForwardError::TooLong { found, context });
        }
        if self.config.reads_images() && found != context {
            return Err(ForwardError::Image { found, expected: context });
        }
        let vocabulary = if self.config.reads_images() { 256 } else { self.config.vocabulary };
        for token in [tokens.f_min()?.f_int64_value(&[])?, tokens.f_max()?.f_int64_value(&[])?] {
            if token < 0 || token as usize >= vocabulary {
                return Err(ForwardError::Token { token, vocabulary });
            }
        }
        Ok(())
    }

    /// Products outside training.
    pub(crate) fn exact(&self) -> Products {
        Products { precision: Precision::F32, ..self.products }
    }

    /// Products of training.
    pub(crate) fn products(&self) -> Products {
        self.products
    }

    /// Computes products of training with another kernel from now on.
    pub(crate) fn set_kernel(&mut self, kernel: Kernel) {
        self.products.kernel = kernel;
    }

    /// The output projection, `[vocabulary, width]`.
    pub(crate) fn head(&self) -> &Tensor {
        &self.head
    }

    /// A block's output projection, `[width, heads · head]`.
    pub(crate) fn out_projection(&self, block: usize) -> &Tensor {
        self.blocks[block].attention().out()
    }

    /// A block's directions of unit length, `[heads, directions, head]`, if it has any.
    pub(crate) fn directions(&self, block: usize) -> Option<Result<Tensor, TchError>> {
        let _no_gradient = tch::no_grad_guard();
        self.blocks[block].directional().map(Directional::directions)
    }

    /// The weight of the norm before the head, `[width]`.
    pub(crate) fn final_norm(&self) -> &Tensor {
        self.norm.weight()
    }

    pub(crate) fn weights(&self) -> &Weights {
        &self.weights
    }

    pub(crate) fn weights_mut(&mut self) -> &mut Weights {
        &mut self.weights
    }

    /// From valid tokens on this device to hidden states after the final norm, recorded by autograd unless it is off.
    /// `lengths` has the lengths of sequences without padding, if there is any.
    pub(crate) fn trunk(
        &self,
        tokens: &Tensor,
        lengths: Option<&Tensor>,
        products: &Products,
    ) -> Result<Tensor, TchError> {
        self.trunk_after(tokens, (lengths, &Unwatched), products, None)
    }

    /// The same, with a watch.
    pub(crate) fn watched_trunk(
        &self,
        tokens: &Tensor,
        lengths: Option<&Tensor>,
        products: &Products,
        watch: &dyn Watch,
    ) -> Result<Tensor, TchError> {
        self.trunk_after(tokens, (lengths, watch), products, None)
    }

    /// The same for tokens after those in the caches.
    fn trunk_after(
        &self,
        tokens: &Tensor,
        (lengths, watch): (Option<&Tensor>, &dyn Watch),
        products: &Products,
        past: Option<(&mut [Past], usize)>,
    ) -> Result<Tensor, TchError> {
        let first = past.as_ref().map_or(0, |(_, read)| *read as i64);
        let stream = self.input.vectors(tokens, first, products)?;
        // An image has no padding.
        let lengths = lengths.filter(|_| !self.config.reads_images());
        let rotation = self.rotation_from(first, &stream)?;
        self.through(stream, (lengths, watch), products, (rotation, past.map(|(blocks, _)| blocks)))
    }

    /// The rotations of a stream whose first token is at this position, `[time, 1, rotated/2]`.
    fn rotation_from(&self, first: i64, stream: &Tensor) -> Result<Option<Tensor>, TchError> {
        let (_, time, _) = stream.size3()?;
        self.rotation.as_ref().map(|all| all.f_narrow(0, first, time)).transpose()
    }

    /// Hidden states of images `[batch, 3, side, side]` with values from -1 to 1, recorded by autograd: `[batch, 1,
    /// width]`, with a watch.
    pub(crate) fn watched_pixels(&self, pixels: &Tensor, watch: &dyn Watch) -> Result<Tensor, ForwardError> {
        let patches = self.input.patches().ok_or(ForwardError::NoImages)?;
        let stream = patches.vectors(pixels, &self.exact())?;
        let rotation = self.rotation_from(0, &stream)?;
        Ok(self.through(stream, (None, watch), &self.exact(), (rotation, None))?)
    }

    /// Whether [`PathModel::packed_trunk`] can read sequences in one row. Directional routers pool over rows, routed
    /// modules leave out padding by themselves, and images have none.
    pub(crate) fn packs(&self) -> bool {
        self.reads_together()
    }

    /// As [`PathModel::watched_trunk`] for packed sequences: tokens `[1, tokens]` to hidden states `[1, tokens, width]`,
    /// equal but for rounding.
    pub(crate) fn packed_trunk(
        &self,
        tokens: &Tensor,
        packed: &Packed,
        products: &Products,
        watch: &dyn Watch,
    ) -> Result<Tensor, TchError> {
        let (stream, rotation) = self.embedded(tokens, Some(packed), products)?;
        let rotation = rotation.as_ref();
        self.all_segments(stream, &Reading { products, rotation, lengths: None, packed: Some(packed), watch }, None)
    }

    /// From vectors `[batch, time, width]` to hidden states after the final norm.
    fn through(
        &self,
        stream: Tensor,
        (lengths, watch): (Option<&Tensor>, &dyn Watch),
        products: &Products,
        (rotation, past): (Option<Tensor>, Option<&mut [Past]>),
    ) -> Result<Tensor, TchError> {
        let reading = Reading { products, rotation: rotation.as_ref(), lengths, packed: None, watch };
        self.all_segments(stream, &reading, past)
    }

    /// The same with everything that a block reads besides the stream.
    fn all_segments(
        &self,
        mut stream: Tensor,
        reading: &Reading<'_>,
        mut past: Option<&mut [Past]>,
    ) -> Result<Tensor, TchError> {
        reading.watch.added(Writer::Embedding, &stream)?;
        for segment in 0..self.segments() {
            if let Some(past) = past.as_deref_mut() {
                self.keep(segment, &stream, past)?;
            }
            stream = self.segment(segment, &stream, reading, past.as_deref_mut())?;
        }
        Ok(stream)
    }

    /// The trunk up to its first segment, recorded by autograd: vectors `[batch, time, width]` of valid tokens on this
    /// device, packed or not, and their rotations, if any.
    pub(crate) fn embedded(
        &self,
        tokens: &Tensor,
        packed: Option<&Packed>,
        products: &Products,
    ) -> Result<(Tensor, Option<Tensor>), TchError> {
        let Some(packed) = packed else {
            let stream = self.input.vectors(tokens, 0, products)?;
            let rotation = self.rotation_from(0, &stream)?;
            return Ok((stream, rotation));
        };
        let positions = packed.positions();
        let stream = self.input.vectors_at(&tokens.f_transpose(0, 1)?, positions, products)?.f_transpose(0, 1)?;
        let rotation = self.rotation.as_ref().map(|all| all.f_index_select(0, positions)).transpose()?;
        Ok((stream, rotation))
    }

    /// Number of segments into which the trunk can be cut: the blocks, the pool if there is one, and the final norm.
    pub(crate) fn segments(&self) -> usize {
        self.blocks.len() + usize::from(self.dna.is_some()) + 1
    }

    /// The stream `[batch, time, width]` after a segment; hidden states after the last. `past` has all caches, if any.
    pub(crate) fn segment(
        &self,
        segment: usize,
        stream: &Tensor,
        reading: &Reading<'_>,
        past: Option<&mut [Past]>,
    ) -> Result<Tensor, TchError> {
        if let Some(block) = self.blocks.get(segment) {
            return block.forward(stream, reading, past.and_then(|all| all.get_mut(segment)));
        }
        if let (Some(dna), true) = (&self.dna, segment == self.blocks.len()) {
            return dna.forward(stream, reading, past.map(|all| &mut all[self.blocks.len()..]));
        }
        let hidden = self.norm.forward(stream)?;
        if self.config.reads_images() { hidden.f_mean_dim([1i64].as_slice(), true, None) } else { Ok(hidden) }
    }
}

#[cfg(test)]
mod tests;
