//! What a transducer is taught: at many places of some documents, which paths would read on well. A part of the documents is
//! kept apart from it, to see how far it can be trusted.

use crate::config::Starts;
use crate::names::PathId;
use crate::routing::{DocumentKey, Place, SwitchThreshold, ahead, soft_targets, stride};
use crate::text::corpus::falls_within;
use crate::text::{TokenSet, Window, windows};
use crate::training::Marked;

/// This share of the documents is kept apart, by their hash.
const APART: f64 = 0.2;

/// So many documents at the most are read by every path, evenly taken. Where the others are at home is learnt, too.
const MOST_READ: usize = 1024;

/// Tokens between two places where it is taught whose document it reads.
pub const HOMES_EVERY: usize = 32;

/// Places in documents, and what each path needs for what follows there.
pub struct TrainingSet<'a> {
    set: &'a TokenSet,
    /// The path of each document.
    homes: &'a [PathId],
    starts: Starts,
    /// Of each document, whether it is kept apart.
    is_apart: Vec<bool>,
    learnt: Part,
    apart: Part,
}

/// Windows, and what each path needs for each of them and those after it, as many as are read on one path.
#[derive(Default)]
struct Part {
    windows: Vec<Window>,
    costs: Vec<Vec<f64>>,
}

impl<'a> TrainingSet<'a> {
    /// A choice every so many tokens. `nats` says what each path needs for some windows; `homes` are the documents' paths.
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

    /// What is taught first: at each place, the path of the document.
    pub fn homes(&self) -> Marked<'a> {
        let mut places = windows(self.set, self.starts, HOMES_EVERY);
        places.retain(|place| !self.is_apart[place.document]);
        homes(self.set, self.homes, &places)
    }

    /// What is taught then.
    pub fn learnt(&self) -> Marked<'a> {
        let targets = soft_targets(&self.learnt.costs);
        Marked::at(self.set, &self.learnt.windows, &|place| targets[place].clone())
    }

    /// What is asked afterwards.
    pub fn apart(&self) -> Marked<'a> {
        Marked::at(self.set, &self.apart.windows, &|_| vec![0])
    }

    /// What to make of a transducer that said this of each place that was kept [apart](Self::apart).
    pub fn switch_threshold(&self, said: &[Vec<f32>]) -> SwitchThreshold {
        let Part { windows, costs } = &self.apart;
        // Nobody is asked where a document begins.
        let asked = said.iter().zip(windows).zip(costs).filter(|((_, window), _)| !window.first);
        let places: Vec<Place<'_>> = asked
            .map(|((preferences, window), costs)| Place { preferences, home: self.homes[window.document].0, costs })
            .collect();
        SwitchThreshold::fit(&places)
    }
}

/// The paths of documents, where their windows begin.
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

    /// Read by two paths, of which the second needs half.
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
        // Every other one has no place where a path is chosen.
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
        // Each document has two windows; what is said of first ones is no matter.
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
