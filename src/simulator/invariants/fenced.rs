//! Invariant: members refuse an update of an owner that, as far as they know, was replaced.

use crate::protocol::wire::message::Update;
use crate::protocol::{Event, Message, Node};

/// The received update, if its term is over and it is not already the next one here.
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
