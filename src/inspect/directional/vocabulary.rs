//! The meaning of directions: their tokens, their angles within a head, and their effective number.

use serde::Serialize;
use tch::{Device, Kind, Tensor};

use super::capture::rows;
use crate::inspect::statistics::{effective_rank, mean};
use crate::inspect::subject::{InspectError, Subject};
use crate::seed::Seed;

/// Tokens listed for a direction.
const TOP: i64 = 10;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Direction {
    pub layer: usize,
    pub head: usize,
    pub direction: usize,
    /// The tokens that it promotes most, through the output projection and the head, with their values.
    pub tokens: Vec<(String, f64)>,
}

/// The directions of a head.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Head {
    pub layer: usize,
    pub head: usize,
    /// The mean of the absolute cosines between them; 0 for one direction.
    pub cosine: f64,
    /// Their effective number: the exponential of the entropy of their singular values.
    pub effective_rank: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Vocabulary {
    pub directions: Vec<Direction>,
    pub heads: Vec<Head>,
    /// Mean cosine and effective rank of random directions, for comparison.
    pub random: [f64; 2],
}

pub fn vocabulary(subject: &Subject) -> Result<Vocabulary, InspectError> {
    let config = subject.config();
    let count = config.directional.as_ref().ok_or(InspectError::Plain)?.directions;
    let (mut directions, mut heads) = (Vec::new(), Vec::new());
    for layer in 0..config.blocks {
        let all = subject.model.directions(layer).ok_or(InspectError::Plain)??;
        let width = config.head_width() as i64;
        for head in 0..config.heads {
            let own = all.f_select(0, head as i64)?;
            let slice = subject.model.out_projection(layer).f_narrow(1, head as i64 * width, width)?;
            // [directions, vocabulary]
            let speaks = own.f_matmul(&slice.f_transpose(0, 1)?)?.f_matmul(&subject.model.head().f_transpose(0, 1)?)?;
            let (values, tokens) = speaks.f_topk(TOP.min(config.vocabulary as i64), -1, true, true)?;
            for direction in 0..count {
                let values: Vec<f64> = Vec::try_from(
                    values.f_select(0, direction as i64)?.f_to_kind(Kind::Double)?.f_to_device(Device::Cpu)?,
                )?;
                let tokens: Vec<i64> = Vec::try_from(tokens.f_select(0, direction as i64)?.f_to_device(Device::Cpu)?)?;
                let text = tokens.iter().map(|token| subject.tokenizer.decode(&[*token as u32]));
                let tokens = text.zip(values).collect();
                directions.push(Direction { layer, head, direction, tokens });
            }
            let [cosine, effective_rank] = together(&own)?;
            heads.push(Head { layer, head, cosine, effective_rank });
        }
    }
    Ok(Vocabulary { directions, heads, random: at_random(count, config.head_width())? })
}

/// Mean absolute cosine and effective rank of unit vectors, `[directions, head]`.
fn together(own: &Tensor) -> Result<[f64; 2], InspectError> {
    let products = rows(&own.f_matmul(&own.f_transpose(0, 1)?)?)?;
    let pairs = (0..products.len()).flat_map(|a| (a + 1..products.len()).map(move |b| (a, b)));
    let cosines: Vec<f64> = pairs.map(|(a, b)| products[a][b].abs()).collect();
    let (_, lengths, _) = own.f_to_kind(Kind::Double)?.f_svd(true, false)?;
    let lengths: Vec<f64> = Vec::try_from(lengths.f_to_device(Device::Cpu)?)?;
    Ok([mean(&cosines), effective_rank(&lengths)])
}

/// The same for random directions, averaged over many heads.
fn at_random(count: usize, width: usize) -> Result<[f64; 2], InspectError> {
    use rand::RngExt;
    const HEADS: usize = 200;
    let mut generator = Seed::root(0).child("random directions").generator();
    let mut sums = [0.0; 2];
    for _ in 0..HEADS {
        // A sum of twelve is nearly normal.
        let mut normal = || (0..12).map(|_| generator.random_range(-0.5..0.5)).sum::<f64>();
        let values: Vec<f64> = (0..count * width).map(|_| normal()).collect();
        let drawn = Tensor::f_from_slice(&values)?.f_view([count as i64, width as i64])?;
        let unit = drawn.f_div(&drawn.f_norm_scalaropt_dim(2, [-1i64].as_slice(), true)?)?;
        let found = together(&unit)?;
        sums = [sums[0] + found[0], sums[1] + found[1]];
    }
    Ok(sums.map(|sum| sum / HEADS as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_directions_amount_to_one_and_orthogonal_ones_to_all() {
        let [cosine, rank] = together(&Tensor::from_slice(&[1.0, 0.0, 1.0, 0.0]).view([2, 2])).unwrap();
        assert!((cosine - 1.0).abs() < 1e-12 && (rank - 1.0).abs() < 1e-6, "{cosine} {rank}");
        let [cosine, rank] = together(&Tensor::eye(3, (Kind::Double, Device::Cpu))).unwrap();
        assert!(cosine.abs() < 1e-12 && (rank - 3.0).abs() < 1e-9);
        let [cosine, rank] = at_random(4, 128).unwrap();
        assert!((cosine - (2.0 / (std::f64::consts::PI * 128.0)).sqrt()).abs() < 0.01, "{cosine}");
        assert!((3.8..4.0).contains(&rank), "{rank}");
    }
}
