//! A node's work on its modules: elections, aggregation, application of updates, audits, rollback, catch-up and
//! replication.

pub(in crate::protocol) mod aggregation;
pub(in crate::protocol) mod apply;
mod attestation;
pub(in crate::protocol) mod audit;
pub(in crate::protocol) mod catch_up;
mod doubt;
pub(in crate::protocol) mod election;
pub(in crate::protocol) mod lists;
pub(in crate::protocol) mod probe;
pub(in crate::protocol) mod replication;
pub(in crate::protocol) mod rollback;
