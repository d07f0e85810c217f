//! Kernels for what lies between the products of a network that trains in bfloat16 on a card: norms, rotation, gates and the
//! loss. libtorch computes each of them in several passes over memory, and a card is faster in products than in those.
//!
//! The source is compiled when a card first trains, by the compiler that libtorch's CUDA brings along (NVRTC). The CPU runs the
//! same source, in tests and to check a card.
//!
//! For processors there is a kernel of [products of a few rows](few_rows).

mod check;
pub mod few_rows;

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError};

use tch::{Device, Kind, TchError, Tensor};

use crate::config::Activation;
use crate::model::fused::said;

const SOURCE: &str = include_str!("kernels.cu");

/// Columns of a norm at most: a thread of a block has four.
const MOST_COLUMNS: i64 = 4096;

/// Values that are read and written at once.
const VECTOR: i64 = 8;

type RawTensor = *const c_void;

unsafe extern "C" {
    fn pathswarm_load_kernels(device: i32, source: *const c_char) -> *mut c_char;
    fn pathswarm_norm_narrow(
        stream: RawTensor,
        added: RawTensor,
        weight: RawTensor,
        bias: RawTensor,
        epsilon: f64,
        centred: bool,
        sum: *mut *mut c_void,
        normed: *mut *mut c_void,
    ) -> *mut c_char;
    fn pathswarm_rotate(
        stacked: RawTensor,
        rotation: RawTensor,
        heads: i64,
        kv_heads: i64,
        head_width: i64,
        rotated: i64,
        found: *mut *mut c_void,
    ) -> *mut c_char;
    fn pathswarm_gate(hidden: RawTensor, activation: i64, found: *mut *mut c_void) -> *mut c_char;
    fn pathswarm_softmax_gradient(logits: RawTensor, targets: RawTensor, losses: *mut *mut c_void) -> *mut c_char;
    #[cfg(test)]
    fn pathswarm_kernel_launches(launches: *mut i64);
}

/// How often this thread has started norms, their gradients, rotations, gates, their gradients, and losses.
#[cfg(test)]
pub(crate) fn launches() -> [i64; 6] {
    let mut found = [0; 6];
    // SAFETY: there are six kernels.
    unsafe { pathswarm_kernel_launches(found.as_mut_ptr()) };
    found
}

/// Whether this device has the kernels: a card, if they can be compiled for it and compute what they compute on the CPU, which
/// is tried at the first call and logged.
pub fn are_there(device: Device) -> bool {
    static CARDS: Mutex<BTreeMap<usize, bool>> = Mutex::new(BTreeMap::new());
    let Device::Cuda(index) = device else { return false };
    // A value that is there was written whole.
    let mut cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
    *cards.entry(index).or_insert_with(|| {
        let agreement = load(index)
            .and_then(|()| check::agrees(&check::outcomes(Device::Cpu)?, &check::outcomes(device)?))
            .and_then(|found| found.ok_or_else(|| TchError::Torch("they compute other values than on the CPU".into())));
        match agreement {
            Ok(difference) => tracing::info!(difference, "this card uses the kernels of this program"),
            Err(ref reason) => tracing::warn!(%reason, "this card cannot use the kernels of this program"),
        }
        agreement.is_ok()
    })
}

fn load(index: usize) -> Result<(), TchError> {
    let source = CString::new(SOURCE).map_err(|error| TchError::Torch(error.to_string()))?;
    // SAFETY: the source lives until the call returns.
    said(unsafe { pathswarm_load_kernels(i32::try_from(index).unwrap_or(i32::MAX), source.as_ptr()) })
}

fn raw(tensor: &Tensor) -> RawTensor {
    tensor.as_ptr().cast()
}

fn or_null(tensor: Option<&Tensor>) -> RawTensor {
    tensor.map_or(null(), raw)
}

/// New tensors that a call has made.
///
/// # Safety
/// After success each pointer is to a new tensor that nobody else has.
unsafe fn made<const COUNT: usize>(
    call: impl FnOnce(&mut [*mut c_void; COUNT]) -> *mut c_char,
) -> Result<[Tensor; COUNT], TchError> {
    let mut found = [null_mut(); COUNT];
    said(call(&mut found))?;
    // SAFETY: see above.
    Ok(found.map(|tensor| unsafe { Tensor::from_ptr(tensor.cast()) }))
}

fn refused(what: &str, tensors: &[&Tensor]) -> TchError {
    let shapes: Vec<_> = tensors.iter().map(|tensor| (tensor.kind(), tensor.size())).collect();
    TchError::Shape(format!("{what} of {shapes:?}"))
}

/// A norm over the last dimension of what is added up, rounded to bfloat16.
#[derive(Clone, Copy)]
pub struct NarrowNorm<'a> {
    /// `[width]`, f32.
    pub weight: &'a Tensor,
    /// `[width]`, f32.
    pub bias: Option<&'a Tensor>,
    pub epsilon: f64,
    /// Whether the mean is taken away first: a layer norm. Else the norm is by the root mean square.
    pub centred: bool,
}

impl NarrowNorm<'_> {
    /// Whether there is a kernel for this width.
    pub fn fits(width: i64) -> bool {
        width > 0 && width % 4 == 0 && width <= MOST_COLUMNS
    }

    /// The sum of a stream `[.., width]`, f32, and what is added, bfloat16, if anything; and its norm, bfloat16. Recorded by
    /// autograd.
    ///
    /// # Errors
    /// If shapes or kinds are others, the width does not fit, or the device has no kernels.
    pub fn forward(&self, stream: &Tensor, added: Option<&Tensor>) -> Result<[Tensor; 2], TchError> {
        let Self { weight, bias, epsilon, centred } = *self;
        let shape = stream.size();
        let width = shape.last().copied().unwrap_or(0);
        let is_of_width = |tensor: &Tensor| tensor.size() == [width] && is(tensor, Kind::Float, stream.device());
        let is_like = |tensor: &Tensor| tensor.size() == shape && is(tensor, Kind::BFloat16, stream.device());
        let fits = is(stream, Kind::Float, stream.device())
            && Self::fits(width)
            && [Some(weight), bias].into_iter().flatten().all(|one| is_of_width(one) && one.is_contiguous())
            && added.is_none_or(is_like);
        if !fits {
            let all: Vec<&Tensor> = [Some(stream), added, Some(weight), bias].into_iter().flatten().collect();
            return Err(refused("a norm in bfloat16", &all));
        }
        // SAFETY: the tensors live until the call returns, which makes two.
        unsafe {
            made(|[sum, normed]| {
                let (more, shift) = (or_null(added), or_null(bias));
                pathswarm_norm_narrow(raw(stream), more, raw(weight), shift, epsilon, centred, sum, normed)
            })
        }
    }
}

fn is(tensor: &Tensor, kind: Kind, device: Device) -> bool {
    tensor.kind() == kind && tensor.device() == device
}

/// How queries, keys and values lie side by side, and which dimensions of a head are turned.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    pub heads: i64,
    pub kv_heads: i64,
    pub head_width: i64,
    /// The first dimensions of a head, of which each in the first half is turned with one in the second.
    pub rotated: i64,
}

impl Rotation {
    /// Whether there is a kernel for these widths.
    pub fn fits(&self) -> bool {
        self.head_width > 0 && self.head_width % VECTOR == 0 && self.rotated % (2 * VECTOR) == 0
    }

    /// Queries, keys and values, `[batch, time, heads or kv_heads, head]`, of `[batch, time, (heads + 2 kv_heads) · head]`,
    /// all bfloat16, turned by `rotation`, `[time, 1, rotated/2]`, complex. Recorded by autograd.
    ///
    /// # Errors
    /// If shapes or kinds are others, widths do not fit, or the device has no kernels.
    pub fn forward(&self, stacked: &Tensor, rotation: &Tensor) -> Result<[Tensor; 3], TchError> {
        let Self { heads, kv_heads, head_width, rotated } = *self;
        let (size, all) = (stacked.size(), (heads + 2 * kv_heads) * head_width);
        let fits = size.len() == 3
            && size[2] == all
            && self.fits()
            && rotation.size() == [size[1], 1, rotated / 2]
            && is(stacked, Kind::BFloat16, stacked.device())
            && is(rotation, Kind::ComplexFloat, stacked.device());
        if !fits {
            return Err(refused("a rotation in bfloat16", &[stacked, rotation]));
        }
        // SAFETY: the tensors live until the call returns, which makes three.
        unsafe {
            made(|found: &mut [_; 3]| {
                let (stacked, rotation) = (raw(stacked), raw(rotation));
                pathswarm_rotate(stacked, rotation, heads, kv_heads, head_width, rotated, found.as_mut_ptr())
            })
        }
    }
}

/// Whether there is a kernel for this width of a gate.
pub fn gate_fits(width: i64) -> bool {
    width > 0 && width % VECTOR == 0
}

/// The first half of `hidden`, `[.., 2 width]`, activated, times the second half: `[.., width]`, all bfloat16. Recorded by
/// autograd.
///
/// # Errors
/// If the kind is another, the width does not fit, or the device has no kernels.
pub fn gate(hidden: &Tensor, activation: Activation) -> Result<Tensor, TchError> {
    let last = hidden.size().last().copied().unwrap_or(0);
    if last % 2 != 0 || !gate_fits(last / 2) || hidden.kind() != Kind::BFloat16 {
        return Err(refused("a gate in bfloat16", &[hidden]));
    }
    let activation = match activation {
        Activation::Silu => 0,
        Activation::Gelu => 1,
        Activation::GeluTanh => 2,
    };
    // SAFETY: the tensor lives until the call returns, which makes one.
    let [found] = unsafe { made(|[found]| pathswarm_gate(raw(hidden), activation, found)) }?;
    Ok(found)
}

/// The cross-entropy of rows of logits, `[rows, vocabulary]`, bfloat16, in nats: `[rows]`, f32. The logits become its gradient:
/// probabilities, and at the target less the sum of the others. `targets` is `[rows]`; a negative one is taken for 0.
///
/// # Errors
/// If shapes or kinds are others, or the device has no kernels.
pub fn softmax_gradient(logits: &mut Tensor, targets: &Tensor) -> Result<Tensor, TchError> {
    let size = logits.size();
    let fits = size.len() == 2
        && size[1] <= i64::from(i32::MAX)
        && targets.size() == [size[0]]
        && logits.is_contiguous()
        && targets.is_contiguous()
        && is(logits, Kind::BFloat16, logits.device())
        && is(targets, Kind::Int64, logits.device());
    if !fits {
        return Err(refused("a loss in bfloat16", &[logits, targets]));
    }
    // SAFETY: the tensors live until the call returns, which makes one, and nobody else reads the logits meanwhile.
    let [losses] = unsafe { made(|[losses]| pathswarm_softmax_gradient(raw(logits), raw(targets), losses)) }?;
    Ok(losses)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
