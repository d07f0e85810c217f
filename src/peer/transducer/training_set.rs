//! The training set of a transducer: at many positions in some documents, which paths would read on well. Some
//! documents are held out, to measure how far it can be trusted.

use crate::config::Starts;
use crate::names::PathId;
use crate::routing::{DocumentKey, Place, SwitchThreshold, ahead, soft_targets, stride};
use crate::text::corpus::falls_within;
use crate::text::{TokenSet, Window, windows};
use crate::training::Marked;

/// Share of the held-out documents, chosen by their hash.
const APART: f64 = 0.2;

/// Limit of documents that every path reads, evenly sampled. The paths of all others are learnt, too.
const MOST_READ: usize = 1024;

/// Tokens between two positions that teach the document's path.
pub const HOMES_EVERY: usize = 32;

/// Positions in documents, and the loss of each path on the following text.
pub struct TrainingSet<'a> {
    set: &'a TokenSet,
    /// The path of each document.
    homes: &'a [PathId],
    starts: Starts,
    /// For each document, whether it is held out.
    is_apart: Vec<bool>,
    learnt: Part,
    apart: Part,
}

/// Windows with the loss of each path on each of them and the following ones, as many as are read on one path.
#[derive(Default)]
struct Part {
    windows: Vec<Window>,
    costs: Vec<Vec<f64>>,
}

impl<'a> TrainingSet<'a> {
    /// For a choice every so many tokens. `nats` returns the loss of each path on some windows; `homes` are the
    /// documents' paths.
    pub fn new(
        set: &'a TokenSet,
        homes: &'a [PathId],
        (starts, every): (Starts, usize),
        nats: impl FnOnce(&[Window]) -> anyhow::Result<Vec<Vec<f64>>>,
    ) -> anyhow::Result<Self> {
        let mut places = windows(set, starts, stride(every));
        let mut read: Vec<usize> = places.iter().map(|place| place.document).collect();
        read.dedup();
        let read: Vec<usize> = read.iter().step_by(read.len().div_ceil(MOST_READ).max(1)).copied().collect();
        places.retain(|place| read.binary_search(&place.document).is_ok());
        let documents: Vec<usize> = places.iter().map(|place| place.document).collect();
        let costs = ahead(&documents, &nats(&places)?, every / stride(every));
        let is_apart = |sequences| falls_within(&DocumentKey::of(&set.span(sequences)).0, APART);
        let is_apart: Vec<bool> = set.documents().map(is_apart).collect();
        let (mut learnt, mut apart) = (Part::default(), Part::default());
        for (window, costs) in places.into_iter().zip(costs) {
            let part = if is_apart[window.document] { &mut apart } else { &mut learnt };
            part.windows.push(window);
            part.costs.push(costs);
        }
        Ok(Self { set, homes, starts, is_apart, learnt, apart })
    }

    /// Whether there is nothing to learn.
    pub fn is_empty(&self) -> bool {
        self.learnt.windows.is_empty()
    }

    /// Targets of the first stage: at each position, the path of the document.
    pub fn homes(&self) -> Marked<'a> {
        let mut places = windows(self.set, self.starts, HOMES_EVERY);
        places.retain(|place| !self.is_apart[place.document]);
        homes(self.set, self.homes, &places)
    }

    /// Targets of the second stage.
    pub fn learnt(&self) -> Marked<'a> {
        let targets = soft_targets(&self.learnt.costs);
        Marked::at(self.set, &self.learnt.windows, &|place| targets[place].clone())
    }

    /// The held-out positions.
    pub fn apart(&self) -> Marked<'a> {
        Marked::at(self.set, &self.apart.windows, &|_| vec![0])
    }

    /// The switch threshold for a transducer with these outputs at the [held-out](Self::apart) positions.
    pub fn switch_threshold(&self, said: &[Vec<f32>]) -> SwitchThreshold {
        let Part { windows, costs } = &self.apart;
        // No path is chosen at the beginning of a document.
        let asked = said.iter().zip(windows).zip(costs).filter(|((_, window), _)| !window.first);
        let places: Vec<Place<'_>> = asked
            .map(|((preferences, window), costs)| Place { preferences, home: self.homes[window.document].0, costs })
            .collect();
        SwitchThreshold::fit(&places)
    }
}

/// The paths of documents, at the beginnings of their windows.
pub fn homes<'a>(set: &'a TokenSet, homes: &[PathId], windows: &[Window]) -> Marked<'a> {
    Marked::at(set, windows, &|place| vec![homes[windows[place].document].0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::Sequences;

    const STARTS: Starts = Starts { of_document: 2, of_sequence: 0 };

    /// A hundred documents of twelve tokens.
    fn set() -> TokenSet {
        TokenSet::cut_for_scoring(&(0..100).map(|text| (text..text + 12).collect()).collect::<Vec<Vec<u32>>>(), 16)
    }

    /// Read by two paths, of which the second has half the loss.
    fn training_set<'a>(set: &'a TokenSet, homes: &'a [PathId]) -> TrainingSet<'a> {
        let nats = |places: &[Window]| Ok(places.iter().map(|_| vec![4.0, 2.0]).collect());
        TrainingSet::new(set, homes, (STARTS, 5), nats).unwrap()
    }

    #[test]
    fn a_fifth_of_the_documents_is_not_learnt() {
        let (set, homes) = (set(), vec![PathId(0); 100]);
        let training_set = training_set(&set, &homes);
        let (learnt, apart) = (training_set.learnt(), training_set.apart());
        assert!((10..30).contains(&apart.len()) && learnt.len() + apart.len() == 100 && !training_set.is_empty());
        let targets: Vec<u32> = learnt.targets(0, 1).into_iter().map(|(_, path)| path).collect();
        assert!(
            targets.iter().filter(|path| **path == 1).count() > targets.len() / 2,
            "the better path has more votes"
        );
    }

    #[test]
    fn of_many_documents_some_are_read_by_every_path_and_the_homes_of_all_are_taught() {
        // Every other document has no position at which a path is chosen.
        let long = |text: u32| if text.is_multiple_of(2) { 2 } else { 12 };
        let documents: Vec<Vec<u32>> =
            (0..4 * MOST_READ as u32 + 2).map(|text| (text..text + long(text)).collect()).collect();
        let (set, homes) = (TokenSet::cut_for_scoring(&documents, 16), vec![PathId(0); documents.len()]);
        let mut read = 0;
        let nats = |places: &[Window]| {
            read = places.len();
            Ok(places.iter().map(|_| vec![4.0, 2.0]).collect())
        };
        let training_set = TrainingSet::new(&set, &homes, (STARTS, 10), nats).unwrap();
        let long = documents.len() / 2;
        assert_eq!(read, long.div_ceil(3));
        let taught = training_set.homes().len();
        assert!(taught * 10 > long * 7 && taught < long, "{taught}");
    }

    #[test]
    fn the_switch_threshold_is_measured_where_somebody_is_asked() {
        let (set, home, away) = (set(), vec![PathId(0); 100], vec![PathId(1); 100]);
        // Each document has two windows; outputs for the first do not matter.
        let said = |own: &TrainingSet<'_>, home: f32, other: f32| -> Vec<Vec<f32>> {
            own.apart
                .windows
                .iter()
                .map(|window| if window.first { vec![home; 2] } else { vec![home, other] })
                .collect()
        };
        let of_home = training_set(&set, &home);
        assert_eq!(
            of_home.switch_threshold(&said(&of_home, 0.0, 1.0)),
            SwitchThreshold::NONE,
            "leaving pays wherever it is said"
        );
        let of_away = training_set(&set, &away);
        let firm = of_away.switch_threshold(&said(&of_away, 1.0, 0.0)).nats();
        assert_eq!(firm, 1.0, "leaving the better path never pays with such a lead");
    }
}
