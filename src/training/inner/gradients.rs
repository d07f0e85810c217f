//! The mean loss of a batch and its gradients, accumulated over micro-batches.

use tch::{Kind, TchError, Tensor};

use crate::model::layers::watch::Watch;
use crate::model::weights::{Leaf, WeightsError};
use crate::model::{PathModel, kind_of_sums};
use crate::training::batches::Batch;
use crate::training::inner::checkpointing::Forward;
use crate::training::inner::loss::cross_entropy;

/// Gradients of each level's tensors, in the order of its buffer.
pub type Gradients = Vec<Vec<Tensor>>;

/// The mean loss in nats over the `tokens` targets of all batches, and its gradients; `watch` observes the forward
/// pass. Parameters that are not trained or had no part in the loss get zero gradients. With `checkpointing`, the same in
/// less memory and more time.
pub fn loss_and_gradients(
    model: &PathModel,
    batches: &[Batch],
    tokens: usize,
    (watch, checkpointing): (&dyn Watch, bool),
) -> Result<(f64, Gradients), TchError> {
    let mut nats = Tensor::f_zeros([0i64; 0].as_slice(), (kind_of_sums(model.device()), model.device()))?;
    let mut sums: Option<Gradients> = None;
    // Checkpointing saves memory, and would lose some of it to copies that are kept.
    let narrow = if batches.len() > 1 && !checkpointing { model.narrowed().map_err(in_tensors)? } else { None };
    let models = (model, narrow.as_ref().unwrap_or(model));
    for batch in batches.iter().filter(|batch| batch.target_count() > 0) {
        let (loss, gradients) = batch_gradients(models, batch, 1.0 / tokens as f64, (watch, checkpointing))?;
        let _ = nats.f_add_(&loss)?;
        match &mut sums {
            None => sums = Some(gradients),
            Some(sums) => {
                for (sum, gradient) in sums.iter_mut().flatten().zip(gradients.iter().flatten()) {
                    let _ = sum.f_add_(gradient)?;
                }
            }
        }
    }
    Ok((nats.f_double_value(&[])? / tokens as f64, sums.unwrap_or_default()))
}

/// What libtorch said of weights.
fn in_tensors(error: WeightsError) -> TchError {
    match error {
        WeightsError::Tensor(error) => error,
        other => TchError::Torch(other.to_string()),
    }
}

/// The sum of a batch's losses, on the device, and the gradients of `scale` times it by the weights of `model`. `computing`
/// is the same network, or its [narrowed](PathModel::narrowed) one.
fn batch_gradients(
    (model, computing): (&PathModel, &PathModel),
    batch: &Batch,
    scale: f64,
    (watch, checkpointing): (&dyn Watch, bool),
) -> Result<(Tensor, Gradients), TchError> {
    let products = model.products();
    let forward = Forward::of(computing, batch, watch, checkpointing)?;
    let hidden = batch.scored_rows(forward.hidden())?;
    let loss = cross_entropy(&products, computing.head(), &hidden, (&batch.targets, batch.weights.as_ref()), scale)?;
    // Its gradient by the hidden states is the one from the head.
    let carrier = hidden.f_mul(&loss.hidden)?.f_sum(Kind::Float)?;
    let tied = model.config().tied_head;
    let is_head = |leaf: &Leaf| !tied && leaf.name == "head.weight";
    let in_trunk = |leaf: &&Leaf| leaf.trained && !is_head(leaf);
    let leaves: Vec<&Tensor> = model.weights().leaves().flatten().filter(in_trunk).map(|leaf| &leaf.tensor).collect();
    drop(hidden);
    let mut found = forward.backward(carrier, &leaves)?.into_iter();
    let mut gradients = Vec::new();
    for level in model.weights().leaves() {
        let mut tensors = Vec::with_capacity(level.len());
        for leaf in level {
            if let Some(by_head) = loss.head.as_ref().filter(|_| is_head(leaf)) {
                tensors.push(by_head.shallow_clone());
                continue;
            }
            // A module that no token chose is not in the graph.
            let gradient = if leaf.trained { found.next().flatten() } else { None };
            let mut gradient = gradient.map_or_else(|| leaf.tensor.f_zeros_like(), Ok)?;
            if let Some(by_head) = loss.head.as_ref().filter(|_| tied && leaf.name == "embedding.tokens.weight") {
                let _ = gradient.f_add_(by_head)?;
            }
            tensors.push(gradient);
        }
        gradients.push(tensors);
    }
    Ok((loss.nats, gradients))
}

#[cfg(test)]
mod tests {
    use tch::{Device, Tensor};

    use crate::config::{Checkpointing, MachineConfig, ModelConfig, Precision};
    use crate::model::initial_levels;
    use crate::model::kernels::launches;
    use crate::model::layers::linear::Kernel;
    use crate::model::weights::to_values;
    use crate::seed::Seed;
    use crate::training::samples::{networks, run_of, small_set};
    use crate::training::{BatchOrder, InnerTrainer};

    /// Heads wide enough for the kernels between products.
    fn wide(model: ModelConfig) -> ModelConfig {
        ModelConfig { width: 64, heads: 2, kv_heads: model.kv_heads.map(|_| 1), head_width: None, ..model }
    }

    fn loss_and_gradient(model: &ModelConfig, precision: Precision, how: (Kernel, Checkpointing)) -> (f64, Vec<f32>) {
        let (kernel, checkpointing) = how;
        let mut run = run_of(model.clone());
        run.training.batch_sequences = 3;
        let precision = precision.into();
        // Two micro-batches, which share copies of the weights without checkpointing.
        let machine = MachineConfig {
            threads: 2,
            micro_batch_sequences: 2,
            checkpointing,
            precision,
            ..MachineConfig::default()
        };
        let mut trainer = InnerTrainer::new(&run, &machine, Device::Cpu).unwrap();
        trainer.model.set_kernel(kernel);
        let initial = |levels: &[_]| initial_levels(&run.model, levels, Seed::root(1));
        trainer.load(&initial(&run.levels)).unwrap();
        trainer.load_frozen(&run.frozen().map(|frozen| initial(&[frozen]).concat()).unwrap_or_default()).unwrap();
        let (set, order) = (small_set(24), BatchOrder { seed: Seed::root(2), sequences: 24 });
        let found = trainer.gradient_now(&set[..], &order, 0).unwrap();
        let values = |tensor: &Tensor| to_values(tensor).unwrap();
        (found.loss, found.gradients.iter().flatten().flat_map(values).collect())
    }

    #[test]
    fn kernels_between_products_are_as_near_to_f32_as_operations_of_libtorch_for_every_network() {
        for (name, model) in networks() {
            let model = wide(model);
            let exact = loss_and_gradient(&model, Precision::F32, (Kernel::Default, Checkpointing::Off));
            let of = |kernel| loss_and_gradient(&model, Precision::Bf16, (kernel, Checkpointing::Off));
            let error = |(loss, gradient): (f64, Vec<f32>)| {
                let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>();
                let apart = norm(&mut gradient.iter().zip(&exact.1).map(|(a, b)| a - b));
                ((loss - exact.0).abs(), (apart / norm(&mut exact.1.iter().copied())).sqrt())
            };
            let by_operations = error(of(Kernel::Default));
            let before = launches();
            let by_kernels = error(of(Kernel::Fused));
            let ran: Vec<bool> = launches().iter().zip(before).map(|(after, before)| *after > before).collect();
            let norms = name != "olmo2" && !name.starts_with("directional");
            let turns = ["llama", "qwen2", "pythia"].contains(&name.as_str());
            let gates = model.gated;
            assert_eq!(ran, [norms, norms, turns, gates, gates, true], "{name}");
            assert!(by_kernels.0 < 2e-3, "{name}: {by_kernels:?} {by_operations:?}");
            assert!(
                by_kernels.1 < 1.2 * by_operations.1 && by_kernels.1 > 0.0,
                "{name}: {by_kernels:?} {by_operations:?}"
            );
        }
    }

    #[test]
    fn checkpointing_changes_no_bit_with_kernels_between_products() {
        let some = networks().into_iter().filter(|(name, _)| ["llama", "pythia", "adapters"].contains(&name.as_str()));
        for (name, model) in some {
            let of = |checkpointing| {
                loss_and_gradient(&wide(model.clone()), Precision::Bf16, (Kernel::Fused, checkpointing))
            };
            assert!(of(Checkpointing::On) == of(Checkpointing::Off), "{name}");
        }
    }
}
