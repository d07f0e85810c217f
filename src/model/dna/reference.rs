//! Reference implementation of the routed steps: token by token, in double precision. The fast implementation must
//! agree with it.

use std::collections::HashMap;

use tch::{Device, Kind, Tensor};

use crate::config::{DnaConfig, ImagesConfig, LevelConfig, ModelConfig, Pool, Positions, Precision};
use crate::model::PathModel;
use crate::model::initial_levels;
use crate::model::layers::watch::Watch;
use crate::model::samples::{dna_levels, dna_model};
use crate::seed::Seed;

const EPSILON: f64 = 1e-5;

struct Reference<'a> {
    model: &'a ModelConfig,
    tensors: HashMap<String, Tensor>,
}

impl Reference<'_> {
    fn get(&self, name: &str) -> &Tensor {
        &self.tensors[name]
    }

    fn norm(&self, name: &str, x: &Tensor) -> Tensor {
        let width = self.model.width as i64;
        x.layer_norm([width], Some(self.get(&format!("{name}.weight"))), None::<&Tensor>, EPSILON, false)
    }

    /// Rotates the halves of a head for a position.
    fn turned(&self, x: &Tensor, position: usize) -> Tensor {
        if self.model.positions == Positions::Learned {
            return x.shallow_clone();
        }
        let half = self.model.head_width() as i64 / 2;
        let angles: Vec<f64> =
            (0..half).map(|pair| position as f64 * 10_000f64.powf(-2.0 * pair as f64 / (2.0 * half as f64))).collect();
        let (cos, sin) = (Tensor::from_slice(&angles).cos(), Tensor::from_slice(&angles).sin());
        let (a, b) = (x.narrow(0, 0, half), x.narrow(0, half, half));
        Tensor::cat(&[&a * &cos - &b * &sin, &a * &sin + &b * &cos], 0)
    }

    /// The output of attention for each member of a sequence. A member attends to itself and those before it; a patch
    /// attends to all.
    fn attended(&self, name: &str, stream: &[Tensor], members: &[usize]) -> Vec<Tensor> {
        let (heads, width) = (self.model.heads as i64, self.model.head_width() as i64);
        let head = |x: &Tensor, part: i64, head: i64| x.narrow(0, (part * heads + head) * width, width);
        let read: Vec<Tensor> = members
            .iter()
            .map(|at| {
                self.get(&format!("{name}.attention.qkv.weight"))
                    .mv(&self.norm(&format!("{name}.attention-norm"), &stream[*at]))
            })
            .collect();
        let one = |own: usize| {
            let seen = if self.model.reads_images() { members.len() } else { own + 1 };
            let of_head = |number| {
                let query = self.turned(&head(&read[own], 0, number), members[own]);
                let scores: Vec<Tensor> = (0..seen)
                    .map(|other| query.dot(&self.turned(&head(&read[other], 1, number), members[other])))
                    .collect();
                let weights = (Tensor::stack(&scores, 0) / (width as f64).sqrt()).softmax(0, Kind::Double);
                let values: Vec<Tensor> = (0..seen).map(|other| head(&read[other], 2, number)).collect();
                Tensor::stack(&values, 0).transpose(0, 1).mv(&weights)
            };
            let said: Vec<Tensor> = (0..heads).map(of_head).collect();
            self.get(&format!("{name}.attention.out.weight")).mv(&Tensor::cat(&said, 0))
        };
        (0..members.len()).map(one).collect()
    }

    fn fed(&self, name: &str, x: &Tensor) -> Tensor {
        let hidden =
            self.get(&format!("{name}.feed-forward.in.weight")).mv(&self.norm(&format!("{name}.feed-forward-norm"), x));
        self.get(&format!("{name}.feed-forward.out.weight")).mv(&hidden.gelu("none"))
    }

    /// `M(h) - h` for the members.
    fn changes(&self, name: &str, stream: &[Tensor], members: &[usize]) -> Vec<Tensor> {
        let has = |part: &str| self.tensors.contains_key(&format!("{name}.{part}.weight"));
        let attended = has("attention.out").then(|| self.attended(name, stream, members));
        let change = |(index, at): (usize, &usize)| {
            let mixed = attended.as_ref().map_or_else(|| stream[*at].zeros_like(), |all| all[index].shallow_clone());
            if !has("feed-forward.out") {
                return mixed;
            }
            let fed = self.fed(name, &(&stream[*at] + &mixed));
            mixed + fed
        };
        members.iter().enumerate().map(change).collect()
    }

    /// The vector of each patch of an image, pixel by pixel.
    fn patches(&self, bytes: &[i64], patch: usize) -> Vec<Tensor> {
        let (side, across) = (self.model.side(), self.model.side() / patch);
        let vector = |at: usize| {
            let (top, left) = (at / across * patch, at % across * patch);
            let pixel = |plane: usize, y: usize, x: usize| bytes[(plane * side + top + y) * side + left + x];
            let mut inputs = Vec::new();
            for plane in 0..3 {
                for y in 0..patch {
                    inputs.extend((0..patch).map(|x| pixel(plane, y, x) as f64 / 127.5 - 1.0));
                }
            }
            let own = self.get("embedding.patches.weight").mv(&Tensor::from_slice(&inputs));
            own + self.get("embedding.positions.weight").get(at as i64)
        };
        (0..across * across).map(vector).collect()
    }

    /// The vector of each token.
    fn embedded(&self, tokens: &[i64]) -> Vec<Tensor> {
        if let Some(images) = self.model.images {
            return self.patches(tokens, images.patch);
        }
        let embed = |(at, token): (usize, &i64)| {
            let own = self.get("embedding.tokens.weight").get(*token);
            self.tensors
                .get("embedding.positions.weight")
                .map_or_else(|| own.shallow_clone(), |all| &own + all.get(at as i64))
        };
        tokens.iter().enumerate().map(embed).collect()
    }

    /// Hidden states of one sequence, `[time, width]`; of an image, their mean, `[1, width]`.
    fn hidden(&self, tokens: &[i64]) -> Tensor {
        let mut stream = self.embedded(tokens);
        let everybody: Vec<usize> = (0..stream.len()).collect();
        for block in 0..self.model.blocks {
            let changes = self.changes(&format!("block.{block}"), &stream, &everybody);
            stream = stream.iter().zip(changes).map(|(h, change)| h + change).collect();
        }
        let dna = self.model.dna.as_ref().unwrap();
        for step in 0..dna.steps {
            stream = self.step(step, dna, &stream);
        }
        let hidden = Tensor::stack(&stream.iter().map(|h| self.norm("final-norm", h)).collect::<Vec<_>>(), 0);
        if self.model.reads_images() {
            return hidden.mean_dim([0i64].as_slice(), true, Kind::Double);
        }
        hidden
    }

    fn step(&self, step: usize, dna: &DnaConfig, stream: &[Tensor]) -> Vec<Tensor> {
        let router = self.get(&format!("router.{step}.weight"));
        let scores: Vec<Tensor> = stream.iter().map(|h| router.mv(h).softmax(0, Kind::Double)).collect();
        let bias = self.get("balance.biases").double_value(&[step as i64]);
        let chosen: Vec<Vec<usize>> = scores
            .iter()
            .map(|scores| {
                let identities = dna.modules.identities();
                let preferred = |module: usize| {
                    scores.double_value(&[module as i64]) + if identities.contains(&module) { bias } else { 0.0 }
                };
                let mut order: Vec<usize> = (0..dna.modules.count()).collect();
                order.sort_by(|a, b| preferred(*b).total_cmp(&preferred(*a)));
                order[..dna.top_k].to_vec()
            })
            .collect();
        let mut next: Vec<Tensor> = stream.iter().map(Tensor::shallow_clone).collect();
        for module in 0..dna.modules.computing() {
            let members: Vec<usize> = (0..stream.len()).filter(|at| chosen[*at].contains(&module)).collect();
            for (at, change) in members.iter().zip(self.changes(&format!("module.{module}"), stream, &members)) {
                next[*at] = &next[*at] + change * scores[*at].get(module as i64);
            }
        }
        next
    }
}

/// Counts of the modules that a batch's tokens choose, over all steps.
#[derive(Default)]
struct Counts(std::cell::RefCell<Vec<Vec<u64>>>);

impl Watch for Counts {
    fn routed(&self, routed: &crate::model::layers::watch::Routed<'_>) -> Result<(), tch::TchError> {
        self.0.borrow_mut().push(routed.counts.to_vec());
        Ok(())
    }
}

const LENGTHS: [i64; 3] = [13, 24, 5];

fn batch() -> Tensor {
    let token = |place: i64| (place * 89 + place * place * 7) % 300;
    Tensor::from_slice(&(0..72).map(token).collect::<Vec<i64>>()).view([3, 24])
}

/// Three images of 8 x 8 pixels.
fn images() -> Tensor {
    let byte = |place: i64| (place * 89 + place * place * 7) % 256;
    Tensor::from_slice(&(0..3 * 192).map(byte).collect::<Vec<i64>>()).view([3, 192])
}

/// The results of one implementation.
struct Computed {
    hidden: Tensor,
    gradients: Vec<Tensor>,
}

/// Hidden states of all tokens without padding, and gradients of a function of them, by the fast implementation and by
/// the reference; and the choices of tokens.
fn both(path: &PathModel) -> ([Computed; 2], Vec<Vec<u64>>) {
    let of_images = path.config().reads_images();
    let (tokens, lengths, said) = if of_images { (images(), [192; 3], [1; 3]) } else { (batch(), LENGTHS, LENGTHS) };
    let counts = Counts::default();
    let hidden = path.watched_trunk(&tokens, Some(&Tensor::from_slice(&lengths)), &path.exact(), &counts).unwrap();
    let rows: Vec<Tensor> = said.iter().enumerate().map(|(row, n)| hidden.get(row as i64).narrow(0, 0, *n)).collect();
    let fast = Tensor::cat(&rows, 0);
    let leaves = || path.weights().leaves().flatten().filter(|leaf| leaf.trained && leaf.name != "head.weight");
    let doubled = |leaf: &crate::model::weights::Leaf| {
        (leaf.name.clone(), leaf.tensor.detach().to_kind(Kind::Double).set_requires_grad(leaf.trained))
    };
    let reference =
        Reference { model: path.config(), tensors: path.weights().leaves().flatten().map(doubled).collect() };
    let slow: Vec<Tensor> = lengths
        .iter()
        .enumerate()
        .map(|(row, n)| reference.hidden(&Vec::<i64>::try_from(&tokens.get(row as i64).narrow(0, 0, *n)).unwrap()))
        .collect();
    let slow = Tensor::cat(&slow, 0);
    let wave = (Tensor::arange(slow.numel() as i64, (Kind::Double, Device::Cpu)) * 0.7).sin().view_as(&slow);
    let gradients = |hidden: &Tensor, leaves: &[&Tensor]| {
        let value = (hidden.to_kind(Kind::Double) * &wave).mean(Kind::Double);
        let found = Tensor::run_backward(&[value], leaves, false, false);
        let known =
            |(gradient, leaf): (Tensor, &&Tensor)| if gradient.defined() { gradient } else { leaf.zeros_like() };
        found.into_iter().zip(leaves).map(known).collect::<Vec<_>>()
    };
    let fast_gradients = gradients(&fast, &leaves().map(|leaf| &leaf.tensor).collect::<Vec<_>>());
    let slow_gradients = gradients(&slow, &leaves().map(|leaf| reference.get(&leaf.name)).collect::<Vec<_>>());
    let fast = Computed { hidden: fast, gradients: fast_gradients };
    let slow = Computed { hidden: slow, gradients: slow_gradients };
    ([fast, slow], counts.0.into_inner())
}

/// Initial values are doubled, except usage and norms, so that tokens differ while rounding stays small.
fn path(model: &ModelConfig, levels: &[LevelConfig]) -> PathModel {
    let mut path = PathModel::new(model, levels, Device::Cpu, Precision::F32).unwrap();
    for (level, values) in initial_levels(model, levels, Seed::root(1)).iter().enumerate() {
        let wide: Vec<f32> = values.iter().map(|value| if *value == 1.0 { 1.0 } else { value * 2.0 }).collect();
        path.set_level(level, &wide).unwrap();
    }
    path.weights_mut().write("balance.biases", &vec![0.0; model.dna.as_ref().unwrap().steps]).unwrap();
    path
}

fn distance(a: &Tensor, b: &Tensor) -> f64 {
    (a.to_kind(Kind::Double) - b.to_kind(Kind::Double)).abs().max().double_value(&[])
}

fn with(change: impl Fn(&mut DnaConfig)) -> ModelConfig {
    let mut model = dna_model();
    model.dna.iter_mut().for_each(change);
    model
}

fn assert_agrees(path: &PathModel, what: &str) -> Vec<Vec<u64>> {
    let ([fast, slow], counts) = both(path);
    let apart = distance(&fast.hidden, &slow.hidden);
    assert!(apart < 1e-5, "{what}: hidden states differ by {apart}");
    for (number, (fast, slow)) in fast.gradients.iter().zip(&slow.gradients).enumerate() {
        let apart = distance(fast, slow);
        assert!(apart < 1e-5, "{what}: gradient {number} differs by {apart}");
    }
    assert!(slow.gradients.iter().any(|gradient| gradient.abs().max().double_value(&[]) > 1e-4));
    counts
}

#[test]
fn whatever_tokens_choose_is_what_the_slow_reference_computes() {
    for positions in [Positions::Learned, Positions::Rotary] {
        for top_k in [1, 2, 3] {
            let model = ModelConfig { positions, ..with(|dna| dna.top_k = top_k) };
            let path = path(&model, &dna_levels());
            let counts = assert_agrees(&path, &format!("{positions:?}, k = {top_k}"));
            assert_eq!(counts.len(), 3);
            assert!(counts.iter().all(|step| step.iter().sum::<u64>() == 42 * top_k as u64));
            assert!(counts.iter().flatten().filter(|count| **count > 0).count() > 3, "{counts:?}");
        }
    }
}

#[test]
fn patches_of_images_see_all_that_chose_the_same_module() {
    for top_k in [1, 2, 3] {
        let images = Some(ImagesConfig { patch: 2 });
        let model = ModelConfig { images, vocabulary: 5, context: 192, ..with(|dna| dna.top_k = top_k) };
        assert_eq!(model.check(), Ok(()));
        let counts = assert_agrees(&path(&model, &dna_levels()), &format!("images, k = {top_k}"));
        assert!(counts.iter().all(|step| step.iter().sum::<u64>() == 48 * top_k as u64));
        assert!(counts.iter().flatten().filter(|count| **count > 0).count() > 3, "{counts:?}");
    }
}

#[test]
fn an_image_is_the_same_wherever_it_is_made_of_bytes_or_of_pixels() {
    let images = Some(ImagesConfig { patch: 2 });
    let model = ModelConfig { images, vocabulary: 5, context: 192, ..dna_model() };
    let path = path(&model, &dna_levels());
    let bytes = self::images();
    let pixels = (bytes.to_kind(Kind::Float) / 127.5 - 1.0).view([3, 3, 8, 8]).set_requires_grad(true);
    let seen = path.watched_pixels(&pixels, &Counts::default()).unwrap();
    assert!(distance(&seen, &path.hidden(&bytes).unwrap()) < 1e-5);
    // The sum of a norm's output is constant, so the function takes fourth powers.
    let value = seen.square().square().sum(Kind::Float);
    let gradient = Tensor::run_backward(&[value], &[&pixels], false, false);
    assert!(gradient[0].abs().max().double_value(&[]) > 1e-6, "what is dreamt follows it");
    assert!(path.hidden(&bytes.narrow(1, 0, 191)).unwrap_err().to_string().contains("192 bytes"));
    assert!(path.read(&mut crate::model::Memory::default(), &[1]).is_err());
}

#[test]
fn modules_that_nobody_chooses_and_one_that_all_choose_are_no_exception() {
    let model = with(|dna| dna.modules = Pool { transformer: 3, attention: 1, mlp: 1, identity: 1 });
    let mut levels = dna_levels();
    levels[0].parts.push("module.4".to_owned());
    for all_choose in 0..6 {
        let mut path = path(&model, &levels);
        // All embeddings share one direction, and the routers see only that direction.
        let _guard = tch::no_grad_guard();
        let tokens = path.weights().tensor("embedding.tokens.weight").unwrap();
        let _ = tokens.narrow(1, 0, 1).fill_(40.0);
        for step in 0..3 {
            let mut router = path.weights().tensor(&format!("router.{step}.weight")).unwrap();
            let _ = router.fill_(0.0);
            let _ = router.narrow(0, all_choose, 1).narrow(1, 0, 1).fill_(0.05);
        }
        drop(_guard);
        path.weights_mut().write("balance.biases", &[0.01, 0.0, -0.01]).unwrap();
        let counts = assert_agrees(&path, &format!("all choose module {all_choose}"));
        assert!(counts.iter().all(|step| step[all_choose as usize] == 42), "{counts:?}");
    }
}

#[test]
fn an_identity_is_chosen_as_its_bias_says_and_costs_nothing() {
    let biased = |bias: f32| {
        let mut path = path(&with(|dna| dna.top_k = 2), &dna_levels());
        path.weights_mut().write("balance.biases", &[bias; 3]).unwrap();
        path
    };
    let skipped = |bias| {
        let counts = assert_agrees(&biased(bias), &format!("a bias of {bias}"));
        counts.iter().map(|step| step[4]).sum::<u64>()
    };
    assert_eq!((skipped(-2.0), skipped(2.0)), (0, 3 * 42));
}

#[test]
fn no_hidden_state_sees_a_later_token() {
    for positions in [Positions::Learned, Positions::Rotary] {
        let path = path(&ModelConfig { positions, ..with(|dna| dna.top_k = 2) }, &dna_levels());
        let tokens = batch();
        let before = path.hidden(&tokens).unwrap();
        for at in [1, 12, 23] {
            let changed = tokens.copy();
            let _ = changed.narrow(1, at, 24 - at).fill_(299);
            let after = path.hidden(&changed).unwrap();
            assert!(distance(&before.narrow(1, 0, at), &after.narrow(1, 0, at)) < 1e-5, "{at}");
            assert!(distance(&before.narrow(1, at, 1), &after.narrow(1, at, 1)) > 1e-3, "{at}");
        }
    }
}

#[test]
fn what_is_read_in_pieces_is_as_if_it_were_read_at_once() {
    for positions in [Positions::Learned, Positions::Rotary] {
        let path = path(&ModelConfig { positions, ..with(|dna| dna.top_k = 2) }, &dna_levels());
        let all: Vec<u32> = (0..24).map(|at| (at * 37 + 11) % 300).collect();
        let whole: Vec<i64> = all.iter().map(|token| i64::from(*token)).collect();
        let whole = path.hidden(&Tensor::from_slice(&whole).view([1, 24])).unwrap();
        let mut memory = crate::model::Memory::default();
        let mut at = 0;
        for piece in [7, 1, 1, 10, 5] {
            let found = path.read(&mut memory, &all[at..at + piece]).unwrap();
            assert!(distance(&found, &whole.narrow(1, at as i64, piece as i64)) < 1e-5, "from {at}");
            at += piece;
        }
    }
}
