//! What a node does with its modules: elections, aggregation, applying updates, audits, rollback, catching up and replication.

pub(in crate::protocol) mod aggregation;
pub(in crate::protocol) mod apply;
pub(in crate::protocol) mod audit;
pub(in crate::protocol) mod catch_up;
pub(in crate::protocol) mod election;
pub(in crate::protocol) mod probe;
pub(in crate::protocol) mod replication;
pub(in crate::protocol) mod rollback;
