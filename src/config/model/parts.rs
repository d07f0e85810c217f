//! The parts of a model, and the tensors that they are made of.

use std::fmt;

/// A part of a model: the unit that a level consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Token embedding and, if learned, positions.
    Embedding,
    Block(usize),
    /// The low-rank adapter of a block.
    Adapter(usize),
    /// The router of a block's directions, or of a routed step.
    Router(usize),
    /// The directions of a block's heads.
    Directions(usize),
    /// One module of the pool.
    Module(usize),
    /// The balance of the modules' shares of choices. No gradient changes it.
    Balance,
    /// The norm before the head.
    FinalNorm,
    /// The output projection, if it is not tied.
    Head,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedding => f.write_str("embedding"),
            Self::Block(index) => write!(f, "block.{index}"),
            Self::Adapter(index) => write!(f, "adapter.{index}"),
            Self::Router(index) => write!(f, "router.{index}"),
            Self::Directions(index) => write!(f, "directions.{index}"),
            Self::Module(index) => write!(f, "module.{index}"),
            Self::Balance => f.write_str("balance"),
            Self::FinalNorm => f.write_str("final-norm"),
            Self::Head => f.write_str("head"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// Normal with this standard deviation.
    Normal(f64),
    /// The same, but values beyond ±2 are drawn again, as PyTorch's `trunc_normal_` does by default.
    Truncated(f64),
    /// Uniform between minus and plus this bound.
    Uniform(f64),
    Constant(f64),
    Ones,
    Zeros,
}

/// One tensor of a module's flat buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// For instance `block.3.attention.qkv.weight`.
    pub name: String,
    /// Row-major.
    pub shape: Vec<usize>,
    pub initial: Initial,
    /// Whether gradients change it.
    pub trained: bool,
    /// The rows of each matrix of a block that is stacked in it, such as queries, keys and values. Empty for all other
    /// tensors: embeddings, head, routers, directions, norms and biases.
    pub matrices: Vec<usize>,
}

impl TensorSpec {
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its group in tables of parameters.
    pub fn purpose(&self) -> &'static str {
        let is = |part: &str| self.name.split('.').any(|own| own == part);
        let purposes = [
            ("adapter", "adapters"),
            ("router", "routers"),
            ("balance", "balance"),
            ("directions", "directions"),
            ("embedding", "embeddings"),
            ("head", "head"),
            ("attention", "attention"),
            ("feed-forward", "feed-forward"),
        ];
        purposes.iter().find(|(part, _)| is(part)).map_or("norms", |(_, purpose)| purpose)
    }
}

/// Collects the tensors of a part.
pub(in crate::config) struct TensorList {
    tensors: Vec<TensorSpec>,
    part: Part,
}

impl TensorList {
    /// An empty list.
    pub(in crate::config) fn of(part: Part) -> Self {
        Self { tensors: Vec::new(), part }
    }

    pub(in crate::config) fn done(self) -> Vec<TensorSpec> {
        self.tensors
    }

    pub(in crate::config) fn add(&mut self, name: &str, shape: &[usize], initial: Initial) {
        let name = format!("{}.{name}", self.part);
        let (shape, matrices) = (shape.to_vec(), Vec::new());
        self.tensors.push(TensorSpec { name, shape, initial, trained: true, matrices });
    }

    /// Adds a tensor that no gradient changes.
    pub(in crate::config) fn fixed(&mut self, name: &str, shape: &[usize], initial: Initial) {
        self.add(name, shape, initial);
        if let Some(last) = self.tensors.last_mut() {
            last.trained = false;
        }
    }

    /// A weight `[outputs, inputs]`, and its bias if it has one.
    pub(in crate::config) fn linear(
        &mut self,
        name: &str,
        [outputs, inputs]: [usize; 2],
        initial: Initial,
        has_bias: bool,
    ) {
        self.add(&format!("{name}.weight"), &[outputs, inputs], initial);
        if has_bias {
            self.add(&format!("{name}.bias"), &[outputs], Initial::Zeros);
        }
    }

    /// As [`Self::linear`], for a block: its outputs are those of matrices with so many rows each.
    pub(in crate::config) fn stacked(
        &mut self,
        name: &str,
        (rows, inputs): (&[usize], usize),
        initial: Initial,
        has_bias: bool,
    ) {
        let weight = self.tensors.len();
        self.linear(name, [rows.iter().sum(), inputs], initial, has_bias);
        self.tensors[weight].matrices = rows.to_vec();
    }

    pub(in crate::config) fn norm(&mut self, name: &str, width: usize, has_bias: bool) {
        let dotted = if name.is_empty() { String::new() } else { format!("{name}.") };
        self.add(&format!("{dotted}weight"), &[width], Initial::Ones);
        if has_bias {
            self.add(&format!("{dotted}bias"), &[width], Initial::Zeros);
        }
    }
}
