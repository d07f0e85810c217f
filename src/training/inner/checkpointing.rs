//! Activation checkpointing: of each segment of the trunk only the input is kept, and the backward pass computes the
//! segment again (1604.06174). A step then holds the activations of one block instead of all, and takes one forward pass
//! longer.
//!
//! Every segment is computed both times as without checkpointing, with the same kernels in the same order, so that no bit
//! of a gradient changes.

use tch::{Kind, TchError, Tensor};

use crate::model::PathModel;
use crate::model::layers::block::Reading;
use crate::model::layers::linear::Products;
use crate::model::layers::packed::Packed;
use crate::model::layers::watch::{Unwatched, Watch, Writer};
use crate::training::batches::Batch;

/// A batch that has gone through the trunk of a network.
pub(super) struct Forward<'a> {
    hidden: Tensor,
    /// With checkpointing.
    kept: Option<Kept<'a>>,
}

/// What the backward pass needs to compute segments again.
struct Kept<'a> {
    model: &'a PathModel,
    products: Products,
    /// The lengths of sequences without padding, `[batch]`.
    lengths: Option<&'a Tensor>,
    packed: Option<&'a Packed>,
    rotation: Option<Tensor>,
    /// The output of the embedding, recorded by autograd: its graph holds hardly more than the tokens.
    embedded: Tensor,
    /// The input of each segment. The graph of the last segment, the final norm, is kept.
    inputs: Vec<Tensor>,
}

/// Gradients of leaves, none for a leaf that had no part.
type Found = Vec<Option<Tensor>>;

impl<'a> Forward<'a> {
    /// The forward pass, recorded by autograd. `watch` observes it, and must not replace values with checkpointing: it does
    /// not see what is computed again.
    pub fn of(
        model: &'a PathModel,
        batch: &'a Batch,
        watch: &dyn Watch,
        checkpointing: bool,
    ) -> Result<Self, TchError> {
        let products = model.products();
        let packed = batch.packed.as_ref();
        if !checkpointing {
            let hidden = match packed {
                Some(packed) => model.packed_trunk(&batch.inputs, packed, &products, watch)?,
                None => model.watched_trunk(&batch.inputs, Some(&batch.lengths), &products, watch)?,
            };
            return Ok(Self { hidden, kept: None });
        }
        let (embedded, rotation) = model.embedded(&batch.inputs, packed, &products)?;
        watch.added(Writer::Embedding, &embedded)?;
        // Neither an image nor a packed row has padding.
        let lengths = Some(&batch.lengths).filter(|_| packed.is_none() && !model.config().reads_images());
        let reading = Reading { products: &products, rotation: rotation.as_ref(), lengths, packed, watch };
        let mut inputs = Vec::with_capacity(model.segments());
        let mut hidden = embedded.shallow_clone();
        for segment in 0..model.segments() {
            let input = apart(&hidden)?;
            // The graph of the segment before goes before this one's grows.
            drop(hidden);
            hidden = model.segment(segment, &input, &reading, None)?;
            inputs.push(input);
        }
        Ok(Self { hidden, kept: Some(Kept { model, products, lengths, packed, rotation, embedded, inputs }) })
    }

    /// Hidden states after the final norm, `[batch, time, width]`.
    pub fn hidden(&self) -> &Tensor {
        &self.hidden
    }

    /// The gradients of a scalar that was computed from the hidden states, by these leaves of the trunk.
    pub fn backward(self, scalar: Tensor, leaves: &[&Tensor]) -> Result<Found, TchError> {
        let Self { hidden, kept } = self;
        drop(hidden);
        let mut sums: Found = leaves.iter().map(|_| None).collect();
        match kept {
            None => {
                gradients(scalar, (leaves, &mut sums), None)?;
            }
            Some(kept) => kept.backward(scalar, leaves, &mut sums)?,
        }
        Ok(sums)
    }
}

impl Kept<'_> {
    fn backward(self, scalar: Tensor, leaves: &[&Tensor], sums: &mut Found) -> Result<(), TchError> {
        let Self { model, products, lengths, packed, rotation, embedded, mut inputs } = self;
        let reading = Reading { products: &products, rotation: rotation.as_ref(), lengths, packed, watch: &Unwatched };
        let mut gradient = gradients(scalar, (leaves, sums), inputs.pop())?;
        while let (Some(input), Some(by_output)) = (inputs.pop(), &gradient) {
            let output = model.segment(inputs.len(), &input, &reading, None)?;
            gradient = gradients(carrier(output, by_output)?, (leaves, sums), Some(input))?;
        }
        if let Some(by_output) = gradient {
            gradients(carrier(embedded, &by_output)?, (leaves, sums), None)?;
        }
        Ok(())
    }
}

/// A tensor with the same values outside the graph, at which another graph begins if gradients go through it.
fn apart(tensor: &Tensor) -> Result<Tensor, TchError> {
    tensor.f_detach()?.f_set_requires_grad(tensor.requires_grad())
}

/// A scalar whose gradient by `output` is this one.
fn carrier(output: Tensor, gradient: &Tensor) -> Result<Tensor, TchError> {
    output.f_mul(gradient)?.f_sum(Kind::Float)
}

/// Adds the gradients of a scalar by leaves to their sums, and returns the one by `input`, if it has one.
fn gradients(
    scalar: Tensor,
    (leaves, sums): (&[&Tensor], &mut Found),
    input: Option<Tensor>,
) -> Result<Option<Tensor>, TchError> {
    let input = input.filter(Tensor::requires_grad);
    if !scalar.requires_grad() {
        return Ok(None);
    }
    let all: Vec<&Tensor> = leaves.iter().copied().chain(&input).collect();
    let mut found = Tensor::f_run_backward(&[scalar], &all, false, false)?;
    let by_input = found.split_off(leaves.len()).pop().filter(Tensor::defined);
    for (sum, gradient) in sums.iter_mut().zip(found).filter(|(_, gradient)| gradient.defined()) {
        match sum {
            Some(sum) => drop(sum.f_add_(&gradient)?),
            None => *sum = Some(gradient),
        }
    }
    Ok(by_input)
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use crate::config::{Checkpointing, LevelConfig, MachineConfig, Precision, RunConfig};
    use crate::model::initial_levels;
    use crate::seed::Seed;
    use crate::training::samples::{networks, run_of, small_set};
    use crate::training::{BatchOrder, InnerTrainer};

    /// Losses of some steps, and what they leave.
    fn trained(
        run: &RunConfig,
        checkpointing: Checkpointing,
        (micro_batch_sequences, precision): (usize, Precision),
    ) -> impl PartialEq + std::fmt::Debug {
        let precision = precision.into();
        let machine =
            MachineConfig { threads: 2, micro_batch_sequences, checkpointing, precision, ..MachineConfig::default() };
        let mut trainer = InnerTrainer::new(run, &machine, Device::Cpu).unwrap();
        let initial = |levels: &[LevelConfig]| initial_levels(&run.model, levels, Seed::root(1));
        trainer.load(&initial(&run.levels)).unwrap();
        trainer.load_frozen(&run.frozen().map(|frozen| initial(&[frozen]).concat()).unwrap_or_default()).unwrap();
        let (set, order) = (small_set(24), BatchOrder { seed: Seed::root(2), sequences: 24 });
        let (first, tokens) = trainer.gradient(&set[..], &order, (0, 0)).unwrap();
        let losses: Vec<u64> =
            (0..3).map(|step| trainer.step(&set[..], &order, step).unwrap().loss.to_bits()).collect();
        let bits = |levels: &[Vec<f32>]| levels.concat().iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        let moments: Vec<_> = trainer.state().unwrap().moments.iter().map(|moments| bits(moments)).collect();
        (losses, tokens, bits(&first), bits(&trainer.levels().unwrap()), moments)
    }

    #[test]
    fn checkpointing_changes_no_bit_of_losses_gradients_and_parameters() {
        for (name, model) in networks() {
            let run = run_of(model);
            for micro_batch in [0, 5] {
                let [with, without] = [Checkpointing::On, Checkpointing::Off]
                    .map(|checkpointing| trained(&run, checkpointing, (micro_batch, Precision::F32)));
                assert!(with == without, "{name} with micro-batches of {micro_batch}");
            }
        }
    }

    #[test]
    fn in_bfloat16_it_changes_no_bit_either() {
        let some = networks().into_iter().enumerate().filter(|(at, (name, _))| *at < 3 || name == "adapters");
        for (_, (name, model)) in some {
            let run = run_of(model);
            // Without checkpointing, several micro-batches share the weights' copies in bfloat16.
            for micro_batch in [0, 5] {
                let [with, without] = [Checkpointing::On, Checkpointing::Off]
                    .map(|checkpointing| trained(&run, checkpointing, (micro_batch, Precision::Bf16)));
                assert!(with == without, "{name} with micro-batches of {micro_batch}");
            }
        }
    }
}
