//! The sections of the page, one a file, in the order in which they are read. Each says what a folder does not have.

pub(super) mod comparison;
pub(super) mod curves;
pub(super) mod experiment;
pub(super) mod faults;
pub(super) mod identity;
pub(super) mod routing;
pub(super) mod summary;
pub(super) mod traffic;
