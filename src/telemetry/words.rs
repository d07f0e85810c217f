//! What a path or a peer waits for, in words.

use crate::names::PeerKey;
use crate::protocol::status::waiting::Waiting;

fn short(peer: PeerKey) -> String {
    format!("…{}", peer.short())
}

fn list(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// What follows "waits for".
pub fn waits_for(waiting: &Waiting) -> String {
    match waiting {
        Waiting::Directory { unanswered, asked } => {
            format!("the leases of {}, of {asked} peers asked", list(unanswered.iter().map(|peer| short(*peer))))
        }
        Waiting::Nobody { asked: 0 } => "the leases of others: no other peer is known".to_owned(),
        Waiting::Nobody { asked } => {
            format!("the leases of others: none of {asked} peers has answered; asking again")
        }
        Waiting::Modules { modules, members } => {
            let noun = if modules.len() == 1 { "module" } else { "modules" };
            let heard = if *members == 0 { "; no member has been heard yet" } else { "" };
            format!("the state of {noun} {}{heard}", modules.join(", "))
        }
        Waiting::Text { path } => format!("the text of path {path}"),
        Waiting::Disk { reason } => format!("the disk to accept writes: {reason}"),
        Waiting::Return { .. } => "the leases of others: this peer has just restarted".to_owned(),
        Waiting::Turn => "its turn: another path of this peer trains".to_owned(),
        Waiting::Trainer { from } => format!("the path's trainer from {}", short(*from)),
        Waiting::Taker => "the peer that takes the path over".to_owned(),
        Waiting::Done => "nothing: its path is done".to_owned(),
        Waiting::Applying { module } => format!("module {module}: an update is being fetched and applied"),
        Waiting::Skipping { module } => format!("module {module}: this path skips the round that others train"),
        Waiting::Unowned { module } => format!("module {module}: it has no owner yet"),
        Waiting::Owner { module, owner, alive: true } => {
            format!("module {module}: its owner {} to aggregate", short(*owner))
        }
        Waiting::Owner { module, owner, alive: false } => {
            format!("module {module}: its owner {} to be replaced, as it is not heard any more", short(*owner))
        }
        Waiting::Collecting { module, complete } => {
            format!("module {module}: about to {}", if *complete { "close" } else { "collect" })
        }
        Waiting::Contributions { module, counted, expected, missing, left_s } => {
            let paths = list(missing.iter().map(|path| format!("path {path}")));
            let left = left_s.map_or_else(String::new, |left_s| format!(", {left_s} s left"));
            format!("module {module}: {counted} of {expected} contributions, missing {paths}{left}")
        }
        Waiting::Arriving { module } => format!("module {module}: contributions are arriving"),
        Waiting::Settling { module } => format!("module {module}: its new owner listens before it closes"),
        Waiting::Pausing { module, counted, left_s } => {
            format!("module {module}: {counted} contributions, the next update in {left_s} s")
        }
        Waiting::Combining { module, contributions } => {
            format!("module {module}: aggregating {contributions} contributions")
        }
    }
}

/// What happens if the wait goes on, or when it ends: a sentence for people.
pub fn follows(waiting: &Waiting) -> &'static str {
    match waiting {
        Waiting::Directory { .. } => "When they have answered, this peer takes a path that needs a trainer.",
        Waiting::Nobody { .. } => "As soon as a peer answers, this peer takes a path. It starts no swarm of its own.",
        Waiting::Modules { .. } => "When the states have arrived, the path trains.",
        Waiting::Text { .. } => "When the text has arrived, the path trains.",
        Waiting::Disk { .. } => "Nothing is lost. Training goes on when there is room.",
        Waiting::Return { .. } => "Then it goes on with its paths, unless others hold them.",
        Waiting::Turn => "It trains when the other path's phase is done.",
        Waiting::Trainer { .. } => "If the state does not come, the optimizer starts anew.",
        Waiting::Taker => "Then this peer gives the path away.",
        Waiting::Done => "This peer keeps serving the run to others.",
        Waiting::Applying { .. } => "Then the next phase begins.",
        Waiting::Skipping { .. } => "The path goes on with the round after it.",
        Waiting::Unowned { .. } => "The members elect an owner.",
        Waiting::Owner { alive: true, .. } => "When the owner has published the update, the next phase begins.",
        Waiting::Owner { alive: false, .. } => "Another member becomes the owner and collects again.",
        Waiting::Collecting { .. } => "Then the contributions are averaged.",
        Waiting::Contributions { left_s: Some(_), .. } => "After that time the update is made without them.",
        Waiting::Contributions { left_s: None, .. } => "How long phases take is not measured yet.",
        Waiting::Arriving { .. } => "When they have arrived, the update is made.",
        Waiting::Settling { .. } => "Then it collects what the members offer.",
        Waiting::Pausing { .. } => "Then the update is made with what is there.",
        Waiting::Combining { .. } => "Then the update is published.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_one_line() {
        let waiting = Waiting::Contributions {
            module: "0.1".to_owned(),
            counted: 1,
            expected: 3,
            missing: vec![2, 5],
            left_s: Some(7),
        };
        assert_eq!(waits_for(&waiting), "module 0.1: 1 of 3 contributions, missing path 2, path 5, 7 s left");
        let owner = Waiting::Owner { module: "1.0".to_owned(), owner: PeerKey([0xab; 32]), alive: false };
        let words = "module 1.0: its owner …abababab to be replaced, as it is not heard any more";
        assert_eq!(waits_for(&owner), words);
    }
}
