//! Products of a few rows with a weight, as in generation: one row for each text that is generated at once.
//!
//! Such a product reads each weight from memory for two operations a row. libtorch's kernels of matrices wait for the memory
//! first and compute then. This one computes with four rows of the weight while it prefetches the next four, so that it takes
//! as long as the longer of the two. The weight is read where it lies: nothing is reordered or copied.
//!
//! An output is the same sum in the same order for any number of rows, so it does not depend on what is computed beside it.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tch::{Device, Kind, TchError, Tensor};

/// More rows than these are no faster here than in libtorch's kernels of matrices (`cargo bench --bench few_rows`).
pub const MOST_ROWS: i64 = 64;

/// Rows of the weight that are computed with at once. With three rows of input they take 12 of 16 vector registers for sums.
const OUTPUTS: usize = 4;

/// Products of two numbers from which on a product is worth a second thread.
const THREADED: usize = 1 << 19;

unsafe extern "C" {
    fn pathswarm_gradients_are_recorded() -> bool;
}

/// `input [.., in]` times `weight [out, in]` transposed, plus the bias: `[.., out]`, in f32. `None` where libtorch is to compute
/// it: for many rows, gradients, other kinds, devices and processors.
///
/// # Errors
/// If the shapes do not fit or there is no memory.
pub fn linear(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Option<Result<Tensor, TchError>> {
    let mut shape = input.size();
    let columns = shape.pop()?;
    let rows: i64 = shape.iter().product();
    let fits =
        |tensor: &Tensor| tensor.kind() == Kind::Float && tensor.device() == Device::Cpu && tensor.is_contiguous();
    // SAFETY: it reads a flag of this thread.
    let recorded = unsafe { pathswarm_gradients_are_recorded() };
    let &[outputs, of] = weight.size().as_slice() else { return None };
    let is_here = (1..=MOST_ROWS).contains(&rows) && columns == of && columns > 0 && outputs > 0;
    if !is_here || recorded || !fits(input) || !fits(weight) || !processor::is_fit() {
        return None;
    }
    shape.push(outputs);
    Some(computed(input, weight, (rows as usize, columns as usize), &shape).and_then(|found| match bias {
        Some(bias) => found.f_add(bias),
        None => Ok(found),
    }))
}

fn computed(
    input: &Tensor,
    weight: &Tensor,
    (rows, columns): (usize, usize),
    shape: &[i64],
) -> Result<Tensor, TchError> {
    let output = Tensor::f_empty(shape, (Kind::Float, Device::Cpu))?;
    let outputs = weight.size()[0] as usize;
    // SAFETY: the tensors are contiguous, f32 and so large, and live until the end; nobody else has the last one.
    let (inputs, weights) = unsafe { (values(input, rows * columns), values(weight, outputs * columns)) };
    let found = Output { first: output.data_ptr().cast(), outputs };
    let threads = if rows * weights.len() < THREADED { 1 } else { tch::get_num_threads().max(1) as usize };
    let all = Product { inputs, weights, columns, rows };
    // Whole groups of outputs for each thread.
    let each = outputs.div_ceil(threads).next_multiple_of(OUTPUTS);
    let next = AtomicUsize::new(0);
    in_parallel(threads, &|| {
        loop {
            let first = next.fetch_add(each, Ordering::Relaxed);
            if first >= outputs {
                break;
            }
            all.compute(first..outputs.min(first + each), &found);
        }
    });
    Ok(output)
}

/// `GOMP_parallel` of the OpenMP that libtorch itself uses.
type Parallel = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, u32, u32);

/// Calls this on so many threads, or on fewer. They are those of libtorch, which spin for a while after each product: other ones
/// would sleep, and take longer to wake than a product takes.
fn in_parallel(threads: usize, work: &(dyn Fn() + Sync)) {
    static PARALLEL: OnceLock<Option<Parallel>> = OnceLock::new();
    extern "C" fn call(work: *mut c_void) {
        // SAFETY: it is the reference below, which lives until all threads have returned.
        unsafe { (*work.cast_const().cast::<&(dyn Fn() + Sync)>())() }
    }
    let parallel = PARALLEL.get_or_init(|| {
        // SAFETY: the name is a C string. What has this name has this type, in GNU's OpenMP and in LLVM's.
        unsafe {
            let found = libc::dlsym(libc::RTLD_DEFAULT, c"GOMP_parallel".as_ptr());
            (!found.is_null()).then(|| std::mem::transmute::<*mut c_void, Parallel>(found))
        }
    });
    match parallel {
        // SAFETY: the work may be called by several threads at once, and is not used afterwards.
        Some(parallel) if threads > 1 => unsafe {
            let threads = u32::try_from(threads).unwrap_or(u32::MAX);
            parallel(call, std::ptr::from_ref(&work).cast_mut().cast(), threads, 0);
        },
        _ => work(),
    }
}

/// # Safety
/// The tensor has so many f32 one after the other, and outlives the slice.
unsafe fn values(tensor: &Tensor, count: usize) -> &[f32] {
    // SAFETY: see above.
    unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast_const().cast(), count) }
}

/// `[rows, outputs]`, which several threads write, each its own outputs.
struct Output {
    first: *mut f32,
    outputs: usize,
}

// SAFETY: who computes writes only the outputs that it was given.
unsafe impl Sync for Output {}

impl Output {
    /// # Safety
    /// The row and the output are there, and nobody else writes this output.
    unsafe fn write(&self, row: usize, output: usize, value: f32) {
        // SAFETY: see above.
        unsafe { self.first.add(row * self.outputs + output).write(value) }
    }
}

struct Product<'a> {
    /// `[rows, columns]`
    inputs: &'a [f32],
    /// `[outputs, columns]`
    weights: &'a [f32],
    columns: usize,
    rows: usize,
}

#[cfg(target_arch = "x86_64")]
mod processor {
    use std::arch::x86_64::{
        __m128, __m256, __m256i, _MM_HINT_T0, _mm_add_ps, _mm_prefetch, _mm_storeu_ps, _mm256_castps256_ps128,
        _mm256_cmpgt_epi32, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_hadd_ps, _mm256_loadu_ps,
        _mm256_maskload_ps, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setzero_ps,
    };
    use std::ops::Range;

    use super::{OUTPUTS, Output, Product};

    /// Floats of a vector.
    const LANES: usize = 8;

    /// Floats of a line of the cache.
    const LINE: usize = 16;

    pub fn is_fit() -> bool {
        std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
    }

    impl Product<'_> {
        /// Computes these outputs of all rows.
        pub fn compute(&self, range: Range<usize>, found: &Output) {
            // SAFETY: the processor is fit, which was asked before. The range is of the outputs.
            unsafe { self.groups(range, found) }
        }

        /// # Safety
        /// The processor is [fit](is_fit), `range` lies within the outputs, and nobody else writes them.
        #[target_feature(enable = "avx2,fma")]
        unsafe fn groups(&self, range: Range<usize>, found: &Output) {
            let weight = |output: usize| self.weights[output * self.columns..].as_ptr();
            let pace = (OUTPUTS * LANES).div_ceil(self.rows.div_ceil(3));
            for first in range.clone().step_by(OUTPUTS) {
                // What is beyond the last output is computed with it and not written.
                let last = range.end - 1;
                let four: [*const f32; OUTPUTS] = std::array::from_fn(|at| weight(last.min(first + at)));
                // The next rows of the weight lie behind these. Each turn fetches its share of them.
                let mut next = weight(first).wrapping_add(OUTPUTS * self.columns);
                for row in (0..self.rows).step_by(3) {
                    let ahead = (next, pace);
                    next = next.wrapping_add(pace * (self.columns / LANES));
                    let part = (row, first..range.end.min(first + OUTPUTS));
                    // SAFETY: the rows are there, and the four rows of the weight.
                    unsafe {
                        match self.rows - row {
                            1 => self.tile::<1>(four, part, ahead, found),
                            2 => self.tile::<2>(four, part, ahead, found),
                            _ => self.tile::<3>(four, part, ahead, found),
                        }
                    }
                }
            }
        }

        /// Some rows of input with four of the weight.
        ///
        /// # Safety
        /// The processor is [fit](is_fit), and all rows are there.
        #[target_feature(enable = "avx2,fma")]
        #[inline]
        unsafe fn tile<const ROWS: usize>(
            &self,
            four: [*const f32; OUTPUTS],
            (row, outputs): (usize, Range<usize>),
            (mut ahead, pace): (*const f32, usize),
            found: &Output,
        ) {
            let columns = self.columns;
            let input: [*const f32; ROWS] = std::array::from_fn(|at| self.inputs[(row + at) * columns..].as_ptr());
            let mut sums = [[_mm256_setzero_ps(); OUTPUTS]; ROWS];
            let whole = columns - columns % LANES;
            let mut at = 0;
            while at < whole {
                _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                if pace > LINE {
                    _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(LINE).cast());
                }
                ahead = ahead.wrapping_add(pace);
                // Sums and rows take 15 of 16 registers. Closures would not be compiled for this processor.
                let mut rows = [_mm256_setzero_ps(); ROWS];
                for row in 0..ROWS {
                    // SAFETY: a whole vector is there.
                    rows[row] = unsafe { _mm256_loadu_ps(input[row].add(at)) };
                }
                for (output, weight) in four.iter().enumerate() {
                    // SAFETY: a whole vector is there.
                    add(&mut sums, rows, output, unsafe { _mm256_loadu_ps(weight.add(at)) });
                }
                at += LANES;
            }
            if at < columns {
                let mask = first_lanes(columns - at);
                let mut rows = [_mm256_setzero_ps(); ROWS];
                for row in 0..ROWS {
                    // SAFETY: only what is there is read.
                    rows[row] = unsafe { _mm256_maskload_ps(input[row].add(at), mask) };
                }
                for (output, weight) in four.iter().enumerate() {
                    // SAFETY: only what is there is read.
                    add(&mut sums, rows, output, unsafe { _mm256_maskload_ps(weight.add(at), mask) });
                }
            }
            for (at, sums) in sums.iter().enumerate() {
                let mut values = [0.0; OUTPUTS];
                // SAFETY: there is room for four.
                unsafe { _mm_storeu_ps(values.as_mut_ptr(), in_all(sums)) };
                for (output, value) in outputs.clone().zip(values) {
                    // SAFETY: the row and the output are there.
                    unsafe { found.write(row + at, output, value) };
                }
            }
        }
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn add<const ROWS: usize>(
        sums: &mut [[__m256; OUTPUTS]; ROWS],
        rows: [__m256; ROWS],
        output: usize,
        weight: __m256,
    ) {
        for row in 0..ROWS {
            sums[row][output] = _mm256_fmadd_ps(rows[row], weight, sums[row][output]);
        }
    }

    /// A mask of so many lanes.
    #[target_feature(enable = "avx2")]
    fn first_lanes(count: usize) -> __m256i {
        _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
    }

    /// The sum of the lanes of each.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn in_all(sums: &[__m256; OUTPUTS]) -> __m128 {
        let halves = _mm256_hadd_ps(_mm256_hadd_ps(sums[0], sums[1]), _mm256_hadd_ps(sums[2], sums[3]));
        _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves))
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod processor {
    use std::ops::Range;

    use super::{Output, Product};

    /// There is no kernel for this processor.
    pub fn is_fit() -> bool {
        false
    }

    impl Product<'_> {
        pub fn compute(&self, _: Range<usize>, _: &Output) {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    fn sample(shape: &[i64], pace: f64) -> Tensor {
        let count: i64 = shape.iter().product();
        (Tensor::arange(count, (Kind::Float, Device::Cpu)) * pace).sin().view(shape)
    }

    fn product(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Option<Tensor> {
        let _no_gradient = tch::no_grad_guard();
        linear(input, weight, bias).map(Result::unwrap)
    }

    #[test]
    fn products_of_all_shapes_are_those_of_libtorch() {
        if !processor::is_fit() {
            return;
        }
        for rows in (1..=8).chain([31, 32]) {
            for (columns, outputs) in [(1, 1), (7, 5), (8, 4), (24, 40), (45, 3), (576, 33), (640, 512), (2048, 1030)] {
                let (input, weight) = (sample(&[rows, 1, columns], 0.37), sample(&[outputs, columns], 0.11));
                let bias = (rows % 2 == 0).then(|| sample(&[outputs], 1.3));
                let found = product(&input, &weight, bias.as_ref()).unwrap();
                let [wide, by, and] =
                    [Some(&input), Some(&weight), bias.as_ref()].map(|it| it.map(|it| it.to_kind(Kind::Double)));
                let exact = wide.unwrap().linear(&by.unwrap(), and);
                assert_eq!(found.size(), [rows, 1, outputs]);
                let difference = (found.to_kind(Kind::Double) - exact).abs().max().double_value(&[]);
                assert!(
                    difference < 1e-5 * (columns as f64).sqrt(),
                    "{rows} rows of {columns} to {outputs}: {difference}"
                );
            }
        }
    }

    #[test]
    fn several_threads_compute_each_output_once() {
        let (calls, threads) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
        in_parallel(2, &|| {
            calls.fetch_add(1, Ordering::Relaxed);
            threads.lock().unwrap().insert(format!("{:?}", std::thread::current().id()));
        });
        let (calls, threads) = (calls.into_inner(), threads.into_inner().unwrap().len());
        assert!(calls == threads && (1..=2).contains(&calls), "{calls} calls on {threads} threads");
    }

    #[test]
    fn a_row_has_the_same_bits_alone_and_beside_others() {
        if !processor::is_fit() {
            return;
        }
        let (input, weight) = (sample(&[32, 77], 0.9), sample(&[1030, 77], 0.3));
        let alone: Vec<Tensor> = (0..32).map(|row| product(&input.narrow(0, row, 1), &weight, None).unwrap()).collect();
        for rows in [2, 3, 4, 17, 32] {
            let together = product(&input.narrow(0, 0, rows), &weight, None).unwrap();
            assert!((0..rows).all(|row| together.narrow(0, row, 1).equal(&alone[row as usize])), "{rows} rows");
        }
    }

    #[test]
    fn what_libtorch_is_to_compute_is_left_to_it() {
        let (input, weight) = (sample(&[4, 24], 0.7), sample(&[40, 24], 0.2));
        let narrow = weight.to_kind(Kind::BFloat16);
        let turned = sample(&[24, 40], 0.2).transpose(0, 1);
        let many = sample(&[MOST_ROWS + 1, 24], 0.7);
        let none = Tensor::zeros([0, 24], (Kind::Float, Device::Cpu));
        for (input, weight) in [(&input, &narrow), (&input, &turned), (&many, &weight), (&none, &weight)] {
            assert!(product(input, weight, None).is_none());
        }
        assert!(product(&sample(&[4, 23], 0.7), &weight, None).is_none());
        assert!(linear(&input, &weight.set_requires_grad(true), None).is_none(), "gradients are recorded");
    }
}
