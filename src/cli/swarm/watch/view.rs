//! What of the run is looked at.

use crate::telemetry::overview::{Axis, Overview, Quantity};

/// The views, in the order of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    #[default]
    Swarm,
    Learning,
    BytesAndTime,
    Contributions,
    Events,
}

impl View {
    pub const ALL: [Self; 5] = [Self::Swarm, Self::Learning, Self::BytesAndTime, Self::Contributions, Self::Events];

    pub fn title(self) -> &'static str {
        match self {
            Self::Swarm => "Swarm",
            Self::Learning => "Learning",
            Self::BytesAndTime => "Bytes and time",
            Self::Contributions => "Contributions",
            Self::Events => "Events",
        }
    }

    pub fn number(self) -> usize {
        Self::ALL.iter().position(|view| *view == self).unwrap_or(0)
    }

    /// The next one, or the one before.
    pub fn beside(self, forward: bool) -> Self {
        let step = if forward { 1 } else { Self::ALL.len() - 1 };
        Self::ALL[(self.number() + step) % Self::ALL.len()]
    }
}

/// Windows of what each peer did when: words, and seconds.
pub const WINDOWS: [(&str, u64); 4] = [("2 min", 120), ("10 min", 600), ("1 h", 3_600), ("all", u64::MAX)];

/// What of the run is looked at, and how.
#[derive(Clone, Debug)]
pub struct ViewState {
    pub view: View,
    /// Lines scrolled, by view.
    pub scrolled: [usize; View::ALL.len()],
    pub quantity: Quantity,
    pub axis: Axis,
    /// The curve that is drawn alone, from 1; 0 for all of them.
    pub curve: usize,
    /// Into [`WINDOWS`].
    pub window: usize,
    /// What is searched for, in lower case; empty for everything.
    pub wanted: String,
    /// Whether what is typed is added to that.
    pub is_typing: bool,
    /// Whether the search has changed: its first finding is to be brought into sight.
    pub seeks: bool,
    pub shows_help: bool,
    pub shows_all_waits: bool,
    pub warnings_only: bool,
    /// The newest event that has been looked at.
    pub seen_event: Option<u64>,
    /// Where the peers are looked for, for people.
    pub source: String,
}

impl ViewState {
    pub fn new(source: impl Into<String>) -> Self {
        Self {
            view: View::default(),
            scrolled: [0; View::ALL.len()],
            quantity: Quantity::default(),
            axis: Axis::default(),
            curve: 0,
            window: 1,
            wanted: String::new(),
            is_typing: false,
            seeks: false,
            shows_help: false,
            shows_all_waits: false,
            warnings_only: false,
            seen_event: None,
            source: source.into(),
        }
    }

    pub fn scrolled(&self) -> usize {
        self.scrolled[self.view.number()]
    }

    pub fn scrolled_mut(&mut self) -> &mut usize {
        &mut self.scrolled[self.view.number()]
    }

    /// Whether a text has in it what is searched for.
    pub fn finds(&self, text: &str) -> bool {
        self.wanted.is_empty() || text.to_lowercase().contains(&self.wanted)
    }

    /// Warnings that have not been looked at.
    pub fn unseen(&self, overview: &Overview) -> usize {
        let is_new = |id: u64| self.seen_event.is_none_or(|seen| id > seen);
        overview.events.iter().filter(|event| event.tone.is_warning() && is_new(event.id)).count()
    }

    /// Takes note of what has just been drawn.
    pub fn drawn(&mut self, overview: &Overview, limits: Limits) {
        let scrolled = self.scrolled_mut();
        *scrolled = limits.sought.unwrap_or(*scrolled).min(limits.farthest);
        self.curve = self.curve.min(limits.curves);
        self.seeks = false;
        if self.view == View::Events || self.seen_event.is_none() {
            self.seen_event = overview.events.last().map(|event| event.id).or(self.seen_event);
        }
    }
}

/// What a drawing has come to, for the keys that follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// How far the view can be scrolled.
    pub farthest: usize,
    /// Lines of a page.
    pub page: usize,
    /// Where the first finding of a search is.
    pub sought: Option<usize>,
    /// Curves that can be chosen.
    pub curves: usize,
}
