//! Products of a few rows with weights that come from memory, as in generation, beside libtorch's, in turns, on one thread:
//! `cargo bench --bench few_rows`. The weights are those of a token of SmolLM2-135M, and of the first path of `SIZES`.

use std::time::Instant;

use pathswarm::model::kernels::few_rows;
use tch::{Device, Kind, Tensor};

/// A product of an input and a weight.
type Kernel<'a> = &'a dyn Fn(&Tensor, &Tensor) -> Tensor;

/// Outputs and inputs of a weight, and how many there are.
type Shape = (i64, i64, usize);

const SMOLLM2: [Shape; 5] = [(576, 576, 60), (192, 576, 60), (1536, 576, 60), (576, 1536, 30), (49_152, 576, 1)];
const SMALL: [Shape; 4] = [(384, 128, 4), (128, 128, 4), (512, 128, 4), (2048, 128, 1)];

const ROUNDS: usize = 9;

/// Seconds of a product with each weight, by this program and by libtorch: the least of several rounds.
#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn measure(shapes: &[Shape], rows: i64) -> [f64; 2] {
    let random = |shape: [i64; 2]| Tensor::randn(shape, (Kind::Float, Device::Cpu));
    let products: Vec<(Tensor, Vec<Tensor>)> = shapes
        .iter()
        .map(|(outputs, inputs, count)| {
            (random([rows, *inputs]), (0..*count).map(|_| random([*outputs, *inputs])).collect())
        })
        .collect();
    let ours =
        |input: &Tensor, weight: &Tensor| few_rows::linear(input, weight, None).expect("the processor is fit").unwrap();
    let theirs = |input: &Tensor, weight: &Tensor| input.linear(weight, None::<&Tensor>);
    let mut least = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        let kernels: [Kernel<'_>; 2] = [&ours, &theirs];
        for (kernel, least) in kernels.iter().zip(&mut least) {
            let begun = Instant::now();
            for (input, weights) in &products {
                weights.iter().for_each(|weight| drop(kernel(input, weight)));
            }
            *least = least.min(begun.elapsed().as_secs_f64());
        }
    }
    least
}

fn main() {
    tch::set_num_threads(1);
    let _no_gradient = tch::no_grad_guard();
    for (name, shapes) in [("SmolLM2-135M", &SMOLLM2[..]), ("a small path", &SMALL[..])] {
        let mut of_one = f64::INFINITY;
        for rows in [1, 2, 4, 8, 16, 24, 32, 48, 64] {
            let [ours, theirs] = measure(shapes, rows);
            if rows == 1 {
                of_one = ours.min(theirs);
            }
            println!(
                "{name}, {rows:2} rows: {:.3} ms, libtorch {:.3} ms: {:.2} times as fast; {:.2} times one row",
                1e3 * ours,
                1e3 * theirs,
                theirs / ours,
                ours / of_one
            );
        }
    }
}
