//! Logit attribution: decomposes the last position's logit of a token into contributions of each part of the network.
//!
//! With the scale of the final norm fixed, the logit is a sum over all additions to the stream: the embedding, each
//! head's output before suppression, the suppressed part, and the feed-forward parts. Without biases, nothing is left
//! over.

use serde::Serialize;
use tch::{Kind, Tensor};

use super::capture::Capture;
use crate::config::NormKind;
use crate::inspect::subject::{InspectError, Subject};
use crate::model::layers::watch::Writer;

/// A part's contribution to a logit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    pub part: String,
    /// The contribution.
    pub logit: f64,
}

/// A token's logit after a prompt.
#[derive(Clone, Debug, Serialize)]
pub struct Attribution {
    /// The token, as text.
    pub target: String,
    pub logit: f64,
    pub probability: f64,
    /// Contributions of the embedding, and of all heads, routing and feed-forward of each layer. They sum to the logit,
    /// except for biases.
    pub parts: Vec<Share>,
    /// The heads with the largest contributions, before routing.
    pub top_heads: Vec<Share>,
}

/// Number of heads listed.
const TOP: usize = 10;

/// The contributions to the logit of `target` after `prompt`.
pub fn attribute(subject: &Subject, prompt: &[u32], target: u32) -> Result<Attribution, InspectError> {
    let capture = Capture::of(subject, prompt)?;
    let added = capture.added_all();
    let last = |tensor: &Tensor| tensor.f_select(0, -1)?.f_to_kind(Kind::Double);
    let stream = added.iter().map(|(_, what)| last(what)).reduce(|sum, next| sum?.f_add(&next?));
    let stream = stream.unwrap_or_else(|| Tensor::f_zeros([0], (Kind::Double, subject.model.device())))?;
    let reader = reader(subject, &stream, target)?;
    let says = |what: &Tensor| Ok::<_, InspectError>(last(what)?.f_dot(&reader)?.f_double_value(&[])?);
    let mut parts = Vec::with_capacity(added.len());
    for (by, what) in &added {
        let part = match by {
            Writer::Embedding => "embedding".to_owned(),
            Writer::Heads(layer) => format!("heads of layer {layer}"),
            Writer::Routing(layer) => format!("routing of layer {layer}"),
            Writer::FeedForward(layer) => format!("feed-forward of layer {layer}"),
        };
        parts.push(Share { part, logit: says(what)? });
    }
    let mut heads = Vec::new();
    for layer in 0..subject.config().blocks {
        let Some(said) = capture.heads_of(layer) else { continue };
        let width = subject.config().head_width() as i64;
        // Through its slice of the output projection.
        let wants = subject.model.out_projection(layer).f_to_kind(Kind::Double)?.f_transpose(0, 1)?.f_mv(&reader)?;
        let said = last(&said)?.f_mul(&wants)?.f_view([-1, width])?;
        let sums: Vec<f64> = Vec::try_from(
            said.f_sum_dim_intlist([1i64].as_slice(), false, Kind::Double)?.f_to_device(tch::Device::Cpu)?,
        )?;
        let share = |(head, logit)| Share { part: format!("layer {layer}, head {head}"), logit };
        heads.extend(sums.into_iter().enumerate().map(share));
    }
    heads.sort_by(|a, b| b.logit.abs().total_cmp(&a.logit.abs()));
    heads.truncate(TOP);
    let logits = subject.model.logits(&crate::inspect::subject::row(prompt))?.f_select(0, 0)?.f_select(0, -1)?;
    let probability = logits.f_softmax(-1, Kind::Double)?.f_double_value(&[i64::from(target)])?;
    let logit = logits.f_double_value(&[i64::from(target)])?;
    Ok(Attribution { target: subject.tokenizer.decode(&[target]), logit, probability, parts, top_heads: heads })
}

/// The vector whose product with an addition to the stream is its contribution to the logit.
fn reader(subject: &Subject, stream: &Tensor, target: u32) -> Result<Tensor, InspectError> {
    let weight = subject.model.final_norm().f_to_kind(Kind::Double)?;
    let row = subject.model.head().f_select(0, i64::from(target))?.f_to_kind(Kind::Double)?;
    let config = subject.config();
    let is_rms = config.norm == NormKind::Rms;
    let square = if is_rms { stream.f_square()?.f_mean(Kind::Double)? } else { stream.f_var(false)? };
    let wanted = weight.f_mul(&row)?.f_div_scalar((square.f_double_value(&[])? + config.norm_epsilon).sqrt())?;
    if is_rms {
        return Ok(wanted);
    }
    // The norm subtracts the mean of its input, which equals subtracting it from the vector.
    Ok(wanted.f_sub(&wanted.f_mean(Kind::Double)?)?)
}
