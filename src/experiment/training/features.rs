//! The ancestor, asked for features, and taught which path reads on best.

use crate::config::Starts;
use crate::experiment::context::{CommonAncestor, Laboratory};
use crate::experiment::dataset::Documents;
use crate::experiment::training::rerouting::Ancestor;
use crate::names::PathId;
use crate::peer::create::dense_trainer::DenseTrainer;
use crate::peer::transducer::training_set;
use crate::peer::transducer::training_set::HOMES_EVERY;
use crate::peer::transducer::{STEPS_HOMES, STEPS_VOTES, fine_tune};
use crate::text::windows;
use crate::training::{Marked, preferences};

/// Who learns from the ancestor's parameters on.
pub struct Teacher<'a> {
    laboratory: &'a Laboratory<'a>,
    ancestor: &'a CommonAncestor,
    /// What transducers begin with.
    levels: Vec<Vec<f32>>,
}

impl<'a> Teacher<'a> {
    /// One that has learnt nothing yet.
    pub fn new(laboratory: &'a Laboratory<'a>, ancestor: &'a CommonAncestor) -> Self {
        Self { laboratory, ancestor, levels: ancestor.dense.levels.clone() }
    }

    /// Features of some tokens, `[chunks, width]`.
    ///
    /// # Errors
    /// If the model cannot take them.
    pub fn features_of(&self, chunks: &[&[u32]]) -> anyhow::Result<Vec<f32>> {
        let Laboratory { machine, scheduler, stop, .. } = self.laboratory;
        let mut trainer = DenseTrainer::new(&self.ancestor.run, machine, scheduler, stop)?;
        trainer.features(&self.ancestor.dense, chunks)
    }

    /// Learns whose documents are whose: `homes` are the paths of these.
    ///
    /// # Errors
    /// If a step fails, or the user asks to stop.
    pub fn learn_homes(&mut self, documents: &Documents, homes: &[PathId], starts: Starts) -> anyhow::Result<()> {
        let places = windows(&documents.set, starts, HOMES_EVERY);
        let lesson = training_set::homes(&documents.set, homes, &places);
        let Laboratory { machine, stop, .. } = self.laboratory;
        let inner = fine_tune(&self.ancestor.run, machine, &self.levels, (&lesson, STEPS_HOMES), stop)?;
        self.levels = inner.levels()?;
        Ok(())
    }
}

impl Ancestor for Teacher<'_> {
    fn features(&mut self, chunks: &[&[u32]]) -> anyhow::Result<Vec<f32>> {
        self.features_of(chunks)
    }

    fn transduce(
        &mut self,
        lesson: &Marked<'_>,
        [apart, test]: [&Marked<'_>; 2],
        paths: usize,
    ) -> anyhow::Result<[Vec<Vec<f32>>; 2]> {
        let Laboratory { machine, stop, .. } = self.laboratory;
        let inner = fine_tune(&self.ancestor.run, machine, &self.levels, (lesson, STEPS_VOTES), stop)?;
        let said = |asked: &Marked<'_>| Ok(preferences(inner.model(), asked, paths)?.concat());
        said(apart).and_then(|apart| Ok([apart, said(test)?]))
    }
}
