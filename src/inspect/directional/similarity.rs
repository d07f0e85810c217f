//! Comparison of two checkpoints on the same text: similarity of their layers (linear CKA; Kornblith and others, 2019),
//! and their confidence.

use serde::Serialize;
use tch::{Kind, Tensor};

use super::capture::Capture;
use crate::inspect::subject::{InspectError, Passages, Subject, row};
use crate::model::layers::watch::Writer;

/// The confidence of a network, averaged over the scored tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sureness {
    /// Entropy of the predictions, in nats.
    pub entropy: f64,
    /// Probability of the likeliest token.
    pub top_probability: f64,
}

/// Two networks, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Similarity {
    /// Of each layer's stream, 0 to 1.
    pub layers: Vec<f64>,
    /// Of both networks.
    pub sureness: [Sureness; 2],
}

pub fn sureness(subject: &Subject, passages: &Passages) -> Result<Sureness, InspectError> {
    let (mut entropy, mut top, mut count) = (0.0, 0.0, 0.0);
    for tokens in &passages.sequences {
        let logits = subject.model.logits(&row(&tokens[..tokens.len() - 1]))?.f_squeeze_dim(0)?;
        let counted = tokens.len() - passages.first;
        let logits = logits.f_narrow(0, passages.first as i64 - 1, counted as i64)?.f_to_kind(Kind::Double)?;
        let likely = logits.f_log_softmax(-1, Kind::Double)?;
        entropy -= likely.f_exp()?.f_mul(&likely)?.f_sum(Kind::Double)?.f_double_value(&[])?;
        top += likely.f_amax([-1i64].as_slice(), false)?.f_exp()?.f_sum(Kind::Double)?.f_double_value(&[])?;
        count += counted as f64;
    }
    Ok(Sureness { entropy: entropy / count, top_probability: top / count })
}

/// Compares two networks that read the same tokens.
pub fn similarity(one: &Subject, other: &Subject, passages: &Passages) -> Result<Similarity, InspectError> {
    let (a, b) = (one.config(), other.config());
    if a.blocks != b.blocks {
        return Err(InspectError::Differ("their number of layers"));
    }
    if a.context > b.context {
        return Err(InspectError::Differ("their context: the other network reads fewer tokens"));
    }
    if a.vocabulary != b.vocabulary || one.tokenizer.json() != other.tokenizer.json() {
        return Err(InspectError::Differ("their tokenizers"));
    }
    let (one_reads, other_reads) = (streams(one, passages)?, streams(other, passages)?);
    let layers = one_reads.iter().zip(&other_reads).map(|(x, y)| linear_cka(x, y)).collect::<Result<_, _>>()?;
    Ok(Similarity { layers, sureness: [sureness(one, passages)?, sureness(other, passages)?] })
}

/// The stream after each layer, for all scored tokens: `[tokens, width]` each.
fn streams(subject: &Subject, passages: &Passages) -> Result<Vec<Tensor>, InspectError> {
    let mut layers: Vec<Vec<Tensor>> = (0..subject.config().blocks).map(|_| Vec::new()).collect();
    for tokens in &passages.sequences {
        let mut stream: Option<Tensor> = None;
        for (by, what) in Capture::of_scored(subject, tokens)?.added_all() {
            let next = match stream {
                None => what,
                Some(stream) => stream.f_add(&what)?,
            };
            if let Writer::FeedForward(layer) = by {
                layers[layer].push(next.f_slice(0, passages.first as i64 - 1, None, 1)?);
            }
            stream = Some(next);
        }
    }
    Ok(layers.iter().map(|parts| Tensor::f_cat(parts, 0)).collect::<Result<_, _>>()?)
}

/// ‖YᵀX‖² / (‖XᵀX‖ ‖YᵀY‖) of centred columns.
fn linear_cka(x: &Tensor, y: &Tensor) -> Result<f64, InspectError> {
    let centred = |z: &Tensor| {
        let z = z.f_to_kind(Kind::Double)?;
        z.f_sub(&z.f_mean_dim([0i64].as_slice(), true, Kind::Double)?)
    };
    let (x, y) = (centred(x)?, centred(y)?);
    let product = |a: &Tensor, b: &Tensor| a.f_transpose(0, 1)?.f_matmul(b)?.f_norm()?.f_double_value(&[]);
    let alike = product(&y, &x)?;
    Ok(alike * alike / (product(&x, &x)? * product(&y, &y)?).max(f64::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    #[test]
    fn turned_scaled_and_shifted_is_alike_and_noise_is_not() {
        let x = (Tensor::arange(600, (Kind::Double, Device::Cpu)) * 0.7).sin().view([200, 3]);
        let turned = Tensor::from_slice(&[0.0, 1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 1.0]).view([3, 3]);
        let same = linear_cka(&x, &(x.matmul(&turned) * 5.0 + 2.0)).unwrap();
        assert!((same - 1.0).abs() < 1e-9, "{same}");
        let other = (Tensor::arange(600, (Kind::Double, Device::Cpu)).square() * 0.37).sin().view([200, 3]);
        assert!(linear_cka(&x, &other).unwrap() < 0.2);
    }
}
