//! Records the outputs of routers and heads while a network reads.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tch::{Device, Kind, TchError, Tensor};

use crate::inspect::subject::{InspectError, Subject, row};
use crate::model::layers::watch::{Watch, Writer};

/// Records one sequence.
#[derive(Default)]
pub struct Capture {
    /// For each layer, `[time or 1, heads · directions]`.
    routing: RefCell<BTreeMap<usize, Tensor>>,
    /// For each layer, `[time, heads · head]`.
    heads: RefCell<BTreeMap<usize, Tensor>>,
    /// Additions to the stream, `[time, width]`.
    added: RefCell<Vec<(Writer, Tensor)>>,
}

impl Watch for Capture {
    fn routing(&self, block: usize, routing: Tensor) -> Result<Tensor, TchError> {
        self.routing.borrow_mut().insert(block, routing.f_squeeze_dim(0)?);
        Ok(routing)
    }

    fn heads(&self, block: usize, heads: Tensor) -> Result<Tensor, TchError> {
        self.heads.borrow_mut().insert(block, heads.f_squeeze_dim(0)?);
        Ok(heads)
    }

    fn added(&self, by: Writer, what: &Tensor) -> Result<(), TchError> {
        self.added.borrow_mut().push((by, what.f_squeeze_dim(0)?));
        Ok(())
    }
}

impl Capture {
    /// Reads a sequence.
    pub fn of(subject: &Subject, tokens: &[u32]) -> Result<Self, InspectError> {
        let capture = Self::default();
        let _ = subject.model.watched(&row(tokens), &capture)?;
        Ok(capture)
    }

    /// Reads a sequence as for scoring: without its last token.
    pub fn of_scored(subject: &Subject, sequence: &[u32]) -> Result<Self, InspectError> {
        Self::of(subject, sequence.split_last().map_or(sequence, |(_, inner)| inner))
    }

    /// Weights by layer: `[time][heads · directions]`; a single row if the router has one output for all.
    pub fn weights(&self) -> Result<Vec<Vec<Vec<f64>>>, InspectError> {
        self.routing.borrow().values().map(rows).collect()
    }

    /// The same as tensors, `[time or 1, heads · directions]`.
    pub fn routing_of_layers(&self) -> Vec<Tensor> {
        self.routing.borrow().values().map(Tensor::shallow_clone).collect()
    }

    /// The outputs of a layer's heads, `[time, heads · head]`.
    pub fn heads_of(&self, layer: usize) -> Option<Tensor> {
        self.heads.borrow().get(&layer).map(Tensor::shallow_clone)
    }

    /// All additions to the stream, in order, `[time, width]` each.
    pub fn added_all(&self) -> Vec<(Writer, Tensor)> {
        self.added.borrow().iter().map(|(by, what)| (*by, what.shallow_clone())).collect()
    }
}

/// The rows of a matrix.
pub fn rows(matrix: &Tensor) -> Result<Vec<Vec<f64>>, InspectError> {
    let wide = matrix.f_to_kind(Kind::Double)?.f_to_device(Device::Cpu)?;
    Ok(Vec::try_from(wide)?)
}

/// The mean of each column.
pub fn column_means(rows: &[Vec<f64>]) -> Vec<f64> {
    let columns = rows.first().map_or(0, Vec::len);
    (0..columns).map(|column| rows.iter().map(|row| row[column]).sum::<f64>() / rows.len() as f64).collect()
}
