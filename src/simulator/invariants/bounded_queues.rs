//! Invariant: no queue or table of a node grows beyond its limit.

use crate::protocol::Node;

/// # Errors
/// Names the queue that is too long.
pub fn look(node: &Node) -> Result<(), String> {
    match node.queues().into_iter().find(|queue| queue.length > queue.limit) {
        Some(queue) => Err(format!("{}: {} of at most {}", queue.name, queue.length, queue.limit)),
        None => Ok(()),
    }
}
