//! Tests of a node's work on modules.

pub(super) mod aggregation;
pub(super) mod apply;
pub(super) mod asynchronous;
mod attestation;
pub(super) mod audit;
pub(super) mod catch_up;
pub(super) mod election;
mod forks;
mod lists;
pub(super) mod probe;
pub(super) mod replication;
pub(super) mod validate;
