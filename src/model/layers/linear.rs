//! Matrix products: the choice of libtorch's kernel and of the precision.
//!
//! On the CPU, libtorch gives an f32 product to MKL, which uses only AVX2 on processors not made by Intel, even if they
//! have AVX-512. Its other library, oneDNN, generates code for the processor at hand, but libtorch uses it only for
//! convolutions. A product with a weight *is* a 1x1 convolution over a channels-last image, without a copy on either
//! side. Measured on an AVX-512 EPYC, forward and backward: 2.2 times as fast as MKL.
//!
//! bfloat16 is done by casting instead of autocast, which in tch 0.24 means float16 and CUDA only. As with autocast,
//! parameters, norms, the residual stream and the loss stay in f32.

use tch::{Device, Kind, TchError, Tensor};

use crate::config::Precision;
use crate::model::kernels::few_rows;

/// From this many images on, libtorch uses oneDNN for a 1x1 convolution on a single thread.
const IMAGES: i64 = 16;

/// Rows of an image where there cannot be just so many images: what packed sequences are a multiple of.
const IMAGE_ROWS: i64 = 8;

/// For fewer rows oneDNN gains less than it loses where it reorders the weights. Training keeps it: the gradients of short
/// chunks are nearer to exact ones with it.
const LEAST_ROWS: i64 = 256;

/// Kernel of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// libtorch's default: MKL on the CPU, cuBLAS on CUDA.
    Default,
    /// oneDNN on the CPU.
    OneDnn,
    /// cuBLAS, and in bfloat16 this program's own [kernels](crate::model::kernels) between products.
    Fused,
}

impl Kernel {
    /// The faster one for this device. It depends only on the machine, so that the same machine computes the same bits.
    pub fn for_device(device: Device) -> Self {
        if device == Device::Cpu && wide_vectors() { Self::OneDnn } else { Self::Default }
    }
}

#[cfg(target_arch = "x86_64")]
fn wide_vectors() -> bool {
    std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512bw")
}

#[cfg(not(target_arch = "x86_64"))]
fn wide_vectors() -> bool {
    false
}

/// Kernel and precision of matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Products {
    pub kernel: Kernel,
    /// f32, or operands rounded to bfloat16.
    pub precision: Precision,
}

impl Products {
    /// `input [.., in]` times `weight [out, in]` transposed, plus the bias: `[.., out]`.
    ///
    /// In bfloat16 the result is bfloat16 too.
    pub fn linear(&self, input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, TchError> {
        if self.precision == Precision::Bf16 {
            let bias = bias.map(|bias| bias.f_to_kind(Kind::BFloat16)).transpose()?;
            return input.f_to_kind(Kind::BFloat16)?.f_linear(&weight.f_to_kind(Kind::BFloat16)?, bias);
        }
        // A frozen weight may be bfloat16; one in f32 stays as it is.
        let weight = &weight.f_to_kind(Kind::Float)?;
        if let Some(found) = few_rows::linear(input, weight, bias) {
            return found;
        }
        let mut shape = input.size();
        let columns = shape.pop().unwrap_or(0);
        let rows: i64 = shape.iter().product();
        let is_short = rows < LEAST_ROWS && !input.requires_grad();
        let images = images_of(rows).filter(|_| self.kernel == Kernel::OneDnn && !is_short);
        let Some(images) = images else { return input.f_linear(weight, bias) };
        shape.push(weight.size().first().copied().unwrap_or(0));
        let image = input.f_reshape([images, rows / images, 1, columns])?.f_permute([0, 3, 1, 2])?;
        let kernel = weight.f_unsqueeze(-1)?.f_unsqueeze(-1)?;
        image.f_conv2d(&kernel, bias, 1, 0, 1, 1)?.f_permute([0, 2, 3, 1])?.f_reshape(shape.as_slice())
    }

    /// Whether the kernels between products are used, which take bfloat16.
    pub fn fuses(&self) -> bool {
        self.kernel == Kernel::Fused && self.precision == Precision::Bf16
    }

    /// Converts the result of a product to the precision of the residual stream and the norms.
    pub fn widen(&self, value: Tensor) -> Result<Tensor, TchError> {
        if self.precision == Precision::Bf16 { value.f_to_kind(Kind::Float) } else { Ok(value) }
    }
}

/// How many images rows are for oneDNN, at least [`IMAGES`]; `None` if they cannot be.
fn images_of(rows: i64) -> Option<i64> {
    let images = if rows % IMAGES == 0 { IMAGES.min(rows) } else { rows / IMAGE_ROWS };
    (images >= IMAGES && rows % images == 0).then_some(images)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn products(kernel: Kernel, precision: Precision) -> Products {
        Products { kernel, precision }
    }

    fn sample(shape: &[i64]) -> Tensor {
        let count: i64 = shape.iter().product();
        (Tensor::arange(count, (Kind::Float, Device::Cpu)) * 0.37).sin().view(shape)
    }

    #[test]
    fn both_kernels_agree_forward_and_backward() {
        for rows in [7, 32, 100, 128] {
            let inputs = [sample(&[2, rows, 24]), sample(&[40, 24]), sample(&[40])];
            let compute = |kernel| {
                let leaves: Vec<Tensor> = inputs.iter().map(|x| x.copy().set_requires_grad(true)).collect();
                let out = products(kernel, Precision::F32).linear(&leaves[0], &leaves[1], Some(&leaves[2])).unwrap();
                assert_eq!(out.size(), [2, rows, 40]);
                let mut results = Tensor::run_backward(&[out.square().sum(Kind::Float)], &leaves, false, false);
                results.push(out.detach());
                results
            };
            for (a, b) in compute(Kernel::Default).iter().zip(compute(Kernel::OneDnn)) {
                assert!(a.allclose(&b, 1e-5, 1e-4, false));
            }
        }
    }

    #[test]
    fn rows_of_packed_sequences_are_computed_by_the_same_kernel_whatever_multiple_of_eight_they_are() {
        assert_eq!([16, 208, 2048].map(images_of), [Some(16); 3]);
        assert_eq!([136, 200, 1000].map(images_of), [Some(17), Some(25), Some(125)]);
        assert_eq!([0, 8, 120, 201, 204].map(images_of), [None; 5]);
        assert!((16..100).map(|eighths| 8 * eighths).all(|rows| images_of(rows).is_some()));
    }

    #[test]
    fn bfloat16_is_close_and_comes_back_wide() {
        let (x, w) = (sample(&[32, 24]), sample(&[40, 24]));
        let narrow = products(Kernel::OneDnn, Precision::Bf16);
        let out = narrow.widen(narrow.linear(&x, &w, None).unwrap()).unwrap();
        assert_eq!(out.kind(), Kind::Float);
        assert!(out.allclose(&x.linear(&w, None::<Tensor>), 0.02, 0.05, false));
    }

    #[test]
    fn shapes_that_do_not_fit_are_an_error() {
        for kernel in [Kernel::Default, Kernel::OneDnn] {
            assert!(products(kernel, Precision::F32).linear(&sample(&[32, 23]), &sample(&[40, 24]), None).is_err());
        }
    }
}
