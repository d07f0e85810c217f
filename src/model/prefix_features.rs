//! What a router sees of a sequence: features of its prefix.

use tch::Tensor;

use crate::model::forward_error::ForwardError;
use crate::model::transformer::PathModel;
use crate::model::weights::to_values;

impl PathModel {
    /// The mean over each prefix of the hidden state after the final norm: `[prefixes, width]`, row-major. The prefix
    /// of an image is the whole image.
    ///
    /// All prefixes are computed at once, so their number should be moderate.
    pub fn prefix_features(&self, prefixes: &[&[u32]]) -> Result<Vec<f32>, ForwardError> {
        if let Some(empty) = prefixes.iter().position(|prefix| prefix.is_empty()) {
            return Err(ForwardError::Empty(empty));
        }
        let Some(longest) = prefixes.iter().map(|prefix| prefix.len()).max() else {
            return Ok(Vec::new());
        };
        if longest > self.config().context {
            return Err(ForwardError::TooLong { found: longest, context: self.config().context });
        }
        let mut padded = vec![0i64; prefixes.len() * longest];
        let mut shares = vec![0f32; prefixes.len() * longest];
        for (row, prefix) in prefixes.iter().enumerate() {
            for (column, token) in prefix.iter().enumerate() {
                padded[row * longest + column] = i64::from(*token);
                shares[row * longest + column] = 1.0 / prefix.len() as f32;
            }
        }
        let shape = [prefixes.len() as i64, longest as i64];
        let _no_gradient = tch::no_grad_guard();
        let padded = Tensor::f_from_slice(&padded)?.f_view(shape)?;
        self.check(&padded)?;
        let lengths: Vec<i64> = prefixes.iter().map(|prefix| prefix.len() as i64).collect();
        let lengths = Tensor::f_from_slice(&lengths)?.f_to_device(self.device())?;
        let hidden = self.trunk(&padded.f_to_device(self.device())?, Some(&lengths), &self.exact())?;
        if self.config().reads_images() {
            return Ok(to_values(&hidden)?);
        }
        let shares = Tensor::f_from_slice(&shares)?.f_view([shape[0], 1, shape[1]])?.f_to_device(self.device())?;
        Ok(to_values(&shares.f_matmul(&hidden)?)?)
    }
}
