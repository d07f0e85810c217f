//! Invariant: fencing. Updates of an owner that was replaced, as far as the receiver knows, are rejected.

use crate::protocol::wire::message::Update;
use crate::protocol::{Event, Message, Node};

/// The received update, if its term is over and it has not arrived before by other means.
pub fn outdated(node: &Node, event: &Event) -> Option<Update> {
    let Event::Heard { module, message, .. } = event else { return None };
    let Message::Update(signed) = message.as_ref() else { return None };
    let (term, next) = node.pending(*module);
    (signed.update.term < term && next != Some(signed)).then(|| signed.update.clone())
}

/// Whether a node is about to apply an update.
pub fn is_taken(node: &Node, update: &Update) -> bool {
    node.pending(update.module).1.is_some_and(|signed| signed.update == *update)
}
