//! What a transducer is taught: at many places of some documents, which paths would read on well. A part of the documents is
//! kept apart from it, to see how far it can be trusted.

use crate::config::Starts;
use crate::names::PathId;
use crate::routing::{Loyalty, Place, ahead, stride, votes};
use crate::text::{TokenSet, Window, windows};
use crate::training::Marked;

/// Of so many documents, one is kept apart.
const APART: usize = 5;

/// Places in documents, and what each path needs for what follows there.
pub struct Lesson<'a> {
    set: &'a TokenSet,
    /// The path of each document.
    homes: &'a [PathId],
    learnt: Part,
    apart: Part,
}

/// Windows, and what each path needs for each of them and those after it, as many as are read on one path.
#[derive(Default)]
struct Part {
    windows: Vec<Window>,
    costs: Vec<Vec<f64>>,
}

impl<'a> Lesson<'a> {
    /// A choice every so many tokens. `nats` says what each path needs for some windows; `homes` are the documents' paths.
    ///
    /// # Errors
    /// If what the paths need cannot be told.
    pub fn new(
        set: &'a TokenSet,
        homes: &'a [PathId],
        (starts, every): (Starts, usize),
        nats: impl FnOnce(&[Window]) -> anyhow::Result<Vec<Vec<f64>>>,
    ) -> anyhow::Result<Self> {
        let places = windows(set, starts, stride(every));
        let documents: Vec<usize> = places.iter().map(|place| place.document).collect();
        let costs = ahead(&documents, &nats(&places)?, every / stride(every));
        let (mut learnt, mut apart) = (Part::default(), Part::default());
        for (window, costs) in places.into_iter().zip(costs) {
            let part = if window.document % APART == APART - 1 { &mut apart } else { &mut learnt };
            part.windows.push(window);
            part.costs.push(costs);
        }
        Ok(Self { set, homes, learnt, apart })
    }

    /// Whether there is nothing to learn.
    pub fn is_empty(&self) -> bool {
        self.learnt.windows.is_empty()
    }

    /// What is taught.
    pub fn learnt(&self) -> Marked<'a> {
        let votes = votes(&self.learnt.costs);
        Marked::at(self.set, &self.learnt.windows, &|place| votes[place].clone())
    }

    /// What is asked afterwards.
    pub fn apart(&self) -> Marked<'a> {
        Marked::at(self.set, &self.apart.windows, &|_| vec![0])
    }

    /// What to make of a transducer that said this of each place that was kept [apart](Self::apart).
    pub fn loyalty(&self, said: &[Vec<f32>]) -> Loyalty {
        let Part { windows, costs } = &self.apart;
        // Nobody is asked where a document begins.
        let asked = said.iter().zip(windows).zip(costs).filter(|((_, window), _)| !window.first);
        let places: Vec<Place<'_>> = asked
            .map(|((preferences, window), costs)| Place { preferences, home: self.homes[window.document].0, costs })
            .collect();
        Loyalty::fit(&places)
    }
}
