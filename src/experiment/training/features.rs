//! The network of the common ancestor: it computes the features for routing, and is fine-tuned into the transducer that
//! chooses routes within a document.

use crate::config::Starts;
use crate::experiment::context::{CommonAncestor, ExperimentContext};
use crate::experiment::dataset::{Dataset, Documents};
use crate::experiment::training::assignment::Features;
use crate::experiment::training::rerouting::Ancestor;
use crate::names::{BlobHash, PathId};
use crate::peer::create::dense_trainer::DenseTrainer;
use crate::peer::transducer::training_set::{self, HOMES_EVERY};
use crate::peer::transducer::{STEPS_HOMES, STEPS_SOFT_TARGETS, fine_tune};
use crate::text::windows;
use crate::training::{Marked, preferences};

/// The ancestor's network, and the initial parameters of transducers.
pub struct AncestorNetwork<'a> {
    context: &'a ExperimentContext<'a>,
    ancestor: &'a CommonAncestor,
    /// Initial parameters of transducers.
    levels: Vec<Vec<f32>>,
}

impl<'a> AncestorNetwork<'a> {
    /// Before any fine-tuning.
    pub fn new(context: &'a ExperimentContext<'a>, ancestor: &'a CommonAncestor) -> Self {
        Self { context, ancestor, levels: ancestor.dense.levels.clone() }
    }

    /// Features of some tokens, `[chunks, width]`.
    fn features_of(&self, chunks: &[&[u32]]) -> anyhow::Result<Vec<f32>> {
        let ExperimentContext { machine, scheduler, stop, .. } = self.context;
        let mut trainer = DenseTrainer::new(&self.ancestor.run, machine, scheduler, stop)?;
        trainer.features(&self.ancestor.dense, chunks)
    }

    /// Features of all documents.
    pub fn features_of_all(&self, dataset: &Dataset) -> anyhow::Result<Features> {
        let run = &self.ancestor.run;
        let of = |documents: &Documents| self.features_of(&documents.prefixes(run.routing.prefix_tokens));
        Ok(Features {
            width: run.model.width,
            ancestor: BlobHash::of(&self.ancestor.file),
            train: of(&dataset.train)?,
            held_out: of(&dataset.held_out)?,
            slice: of(&dataset.slice)?,
            test: of(&dataset.test)?,
        })
    }

    /// Fine-tunes the network to predict the path of each document; `homes` are the paths.
    ///
    /// # Errors
    /// If a step fails or the user asks to stop.
    pub fn learn_homes(&mut self, documents: &Documents, homes: &[PathId], starts: Starts) -> anyhow::Result<()> {
        let positions = windows(&documents.set, starts, HOMES_EVERY);
        let fit_set = training_set::homes(&documents.set, homes, &positions);
        let ExperimentContext { machine, stop, .. } = self.context;
        let inner = fine_tune(&self.ancestor.run, machine, &self.levels, (&fit_set, STEPS_HOMES), stop)?;
        self.levels = inner.levels()?;
        Ok(())
    }
}

impl Ancestor for AncestorNetwork<'_> {
    fn transduce(
        &mut self,
        fit_set: &Marked<'_>,
        [apart, test]: [&Marked<'_>; 2],
        paths: usize,
    ) -> anyhow::Result<[Vec<Vec<f32>>; 2]> {
        let ExperimentContext { machine, stop, .. } = self.context;
        let inner = fine_tune(&self.ancestor.run, machine, &self.levels, (fit_set, STEPS_SOFT_TARGETS), stop)?;
        let said = |asked: &Marked<'_>| Ok(preferences(inner.model(), asked, paths)?.concat());
        said(apart).and_then(|apart| Ok([apart, said(test)?]))
    }
}
