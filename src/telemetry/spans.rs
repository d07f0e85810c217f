//! What each peer did when: training a phase, or waiting for something.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

/// Spans kept of all peers together.
const MOST_SPANS: usize = 2_000;

/// What a peer does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It trains a phase of a path, counted from 0.
    Training { path: u32, phase: u64 },
    /// It waits. Waits of one kind for one module are one span, although their words change.
    Waiting { kind: String, module: Option<String> },
}

/// A part of a peer's time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    id: u64,
    pub(super) peer: String,
    pub(super) doing: Doing,
    words: String,
    pub(super) from_ms: u64,
    /// Nothing while it lasts.
    pub(super) to_ms: Option<u64>,
}

impl Span {
    pub(super) fn to_json(&self) -> Value {
        let Self { id, peer, doing, words, from_ms, to_ms } = self;
        let (kind, path, phase) = match doing {
            Doing::Training { path, phase } => ("training", Some(path), Some(phase)),
            Doing::Waiting { kind, .. } => (kind.as_str(), None, None),
        };
        json!({ "id": id, "peer": peer, "kind": kind, "path": path, "phase": phase, "words": words, "from": from_ms,
                "to": to_ms })
    }
}

/// The newest spans of all peers.
#[derive(Debug, Default)]
pub(super) struct Spans {
    spans: VecDeque<Span>,
    next: u64,
    open: BTreeMap<String, u64>,
    changed: BTreeSet<u64>,
}

impl Spans {
    /// A peer does something from now on. Returns the span that this ends, with its length in seconds.
    pub(super) fn set(&mut self, at: (&str, u64), doing: Doing, words: String) -> Option<(Doing, f64)> {
        let (peer, now_ms) = at;
        if let Some(open) = self.open_of(peer)
            && open.doing == doing
        {
            if open.words != words {
                open.words = words;
                let id = open.id;
                self.changed.insert(id);
            }
            return None;
        }
        let ended = self.end(peer, now_ms);
        let id = self.next;
        self.next += 1;
        self.spans.push_back(Span { id, peer: peer.to_owned(), doing, words, from_ms: now_ms, to_ms: None });
        if self.spans.len() > MOST_SPANS {
            self.spans.pop_front();
        }
        self.open.insert(peer.to_owned(), id);
        self.changed.insert(id);
        ended
    }

    /// Ends what a peer does.
    pub(super) fn end(&mut self, peer: &str, now_ms: u64) -> Option<(Doing, f64)> {
        let open = self.open_of(peer)?;
        open.to_ms = Some(now_ms);
        let (id, ended) = (open.id, (open.doing.clone(), now_ms.saturating_sub(open.from_ms) as f64 / 1e3));
        self.open.remove(peer);
        self.changed.insert(id);
        Some(ended)
    }

    /// What a peer does.
    pub(super) fn now(&self, peer: &str) -> Option<&Span> {
        self.spans.get(self.place_of(*self.open.get(peer)?)?)
    }

    /// Where a span is, if it is still kept: their numbers follow each other.
    fn place_of(&self, id: u64) -> Option<usize> {
        usize::try_from(id.checked_sub(self.spans.front()?.id)?).ok()
    }

    fn open_of(&mut self, peer: &str) -> Option<&mut Span> {
        let place = self.place_of(*self.open.get(peer)?)?;
        self.spans.get_mut(place)
    }

    /// Oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter()
    }

    pub(super) fn all(&self) -> Vec<Value> {
        self.spans.iter().map(Span::to_json).collect()
    }

    /// Those that changed since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<Value> {
        let changed = std::mem::take(&mut self.changed);
        let first = changed.first().copied().unwrap_or(u64::MAX);
        let newest = self.spans.iter().rev().take_while(|span| span.id >= first);
        let mut taken: Vec<Value> = newest.filter(|span| changed.contains(&span.id)).map(Span::to_json).collect();
        taken.reverse();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(kind: &str) -> Doing {
        Doing::Waiting { kind: kind.to_owned(), module: Some("0.1".to_owned()) }
    }

    #[test]
    fn a_wait_whose_words_change_is_one_span() {
        let mut spans = Spans::default();
        assert_eq!(spans.set(("a", 1_000), waiting("owner"), "one".to_owned()), None);
        assert_eq!(spans.set(("a", 2_000), waiting("owner"), "two".to_owned()), None);
        let training = Doing::Training { path: 1, phase: 0 };
        assert_eq!(spans.set(("a", 4_000), training.clone(), String::new()), Some((waiting("owner"), 3.0)));
        let all = spans.all();
        assert_eq!((all.len(), &all[0]["words"], &all[0]["to"]), (2, &json!("two"), &json!(4_000)));
        assert_eq!((spans.take_changed().len(), spans.take_changed().len()), (2, 0));
        assert_eq!(spans.end("a", 5_000), Some((training, 1.0)));
        assert_eq!(spans.take_changed(), [spans.all()[1].clone()]);
    }

    #[test]
    fn old_spans_go() {
        let mut spans = Spans::default();
        for at in 0..10_000 {
            spans.set(("a", at), Doing::Training { path: 0, phase: at }, String::new());
        }
        assert_eq!(spans.all().len(), MOST_SPANS);
        assert!(spans.take_changed().len() <= MOST_SPANS);
    }
}
