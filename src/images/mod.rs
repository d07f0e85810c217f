//! Images: folders become one prepared file of small square images, its images become documents, and training augments
//! them.
//!
//! In data order: [`prepare()`] finds the images ([`source`]: folders of classes, or CIFAR-10), makes each of them
//! square and small, and writes a file ([`PreparedWriter`]). [`PreparedReader`] returns them one by one with their
//! classes. [`augmented`] changes the images of a step by [`Augment`](crate::config::Augment). Image bytes are always
//! planar: all red, all green, all blue, each in rows from the top. No model and no path is known here.

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
pub use crate::images::prepared::{MAGIC as PREPARED_MAGIC, PreparedError};
pub use crate::images::prepared_reader::PreparedReader;
pub use crate::images::prepared_writer::PreparedWriter;
pub use crate::images::source::SourceError;
