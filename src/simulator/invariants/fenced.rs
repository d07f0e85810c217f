//! Receivers fence: what an owner says that has been replaced, as far as the hearer knows, is not taken.

use crate::protocol::wire::message::Update;
use crate::protocol::{Event, Message, Node};

/// The update that is being heard, if its term is over and nothing else has brought it here before.
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
