//! Folders become one prepared file of small square images, this becomes documents, and training changes these by chance.
//!
//! In data order: [`prepare()`] finds the images ([`source`]: folders of classes, or CIFAR-10), makes each of them
//! square and small, and writes a file ([`PreparedWriter`]); [`PreparedReader`] gives them back one by one, each with its
//! class, as documents are made of them; [`augmented`] changes those that a step trains on, as [`Augment`](crate::config::Augment) says.
//! An image is planar wherever it is bytes: all its red, all its green, all its blue, each in rows from the top.
//! No model and no path is known here.

pub mod augment;
mod changes;
mod fitting;
mod mixing;
pub mod prepare;
pub mod prepared;
mod prepared_reader;
mod prepared_writer;
pub mod source;

pub use crate::images::augment::{Augmented, augmented};
pub use crate::images::prepare::{PrepareError, Prepared, prepare};
pub use crate::images::prepared::PreparedError;
pub use crate::images::prepared_reader::PreparedReader;
pub use crate::images::prepared_writer::PreparedWriter;
pub use crate::images::source::SourceError;
