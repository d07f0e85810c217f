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
