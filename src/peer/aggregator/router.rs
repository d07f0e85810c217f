//! The outer step of a run's router, for resharding. Instead of outer gradients and their average, this module has the
//! paths' scores on the slice, and the set of all scores.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::names::{BlobHash, BlobRef, ModuleId, Version};
use crate::peer::aggregator::AggregateError;
use crate::peer::manifest::{Manifest, Resharding};
use crate::protocol::wire::message::Counted;
use crate::routing::resharding::{Atlas, PathScores};
use crate::store::{BlobError, BlobStore};

/// Holds the scores of the open round, and the atlas once it is needed.
pub struct RouterRounds {
    manifest: Arc<Manifest>,
    blobs: BlobStore,
    module: ModuleId,
    parts: Resharding,
    paths: u32,
    atlas: Option<Atlas>,
    open: Option<(Version, BTreeMap<BlobHash, PathScores>)>,
}

impl RouterRounds {
    /// `None` in a run without resharding.
    pub fn new(manifest: Arc<Manifest>, blobs: BlobStore) -> Option<Self> {
        let (module, parts) = (manifest.config.router_module()?, manifest.resharding?);
        let paths = manifest.config.grid().ok()?.path_count();
        Some(Self { manifest, blobs, module, parts, paths, atlas: None, open: None })
    }

    /// The router's module.
    pub fn module(&self) -> ModuleId {
        self.module
    }

    /// Begins a round, in place of any other.
    pub fn open(&mut self, target: Version) {
        self.open = Some((target, BTreeMap::new()));
    }

    /// Adds the scores of one path to the round, and returns whether they are valid.
    pub fn accumulate(&mut self, target: Version, blob: BlobHash) -> Result<bool, AggregateError> {
        let documents = self.parts.slice_documents as usize;
        let Some((_, heard)) = self.open.as_mut().filter(|(open, _)| *open == target) else { return Ok(false) };
        let Some(bytes) = self.blobs.get(blob, PathScores::max_bytes(self.paths, documents))? else { return Ok(false) };
        match PathScores::decode(&bytes, self.paths, documents).map(<[PathScores; 1]>::try_from) {
            Ok(Ok([scores])) => {
                // A path without scores sends the same bytes in every round.
                heard.insert(blob, scores);
                Ok(true)
            }
            other => {
                tracing::warn!(%blob, ?other, "not a table of scores");
                Ok(false)
            }
        }
    }

    /// The scores of a round, and the state that follows. If a path has several, the newest count, and no path can
    /// score for another.
    pub fn combine(
        &mut self,
        target: Version,
        from: BlobRef,
        contributions: &[Counted],
    ) -> Result<(Vec<u8>, Vec<u8>), AggregateError> {
        let lost = AggregateError::Sum { module: self.module, target };
        let Some((_, heard)) = self.open.take().filter(|(open, _)| *open == target) else { return Err(lost) };
        let mut all = BTreeMap::new();
        for counted in contributions {
            let Some(scores) = heard.get(&counted.blob.hash) else { return Err(lost) };
            if scores.path == counted.path && !scores.nats.is_empty() {
                all.insert(scores.path, scores.clone());
            }
        }
        let average = PathScores::encode(&all.into_values().collect::<Vec<_>>());
        let made = self.apply(from, &average)?.ok_or(lost)?;
        Ok((average, made))
    }

    /// The scores of one path in a blob, if valid; `None` if the blob is absent.
    pub fn scores(&self, blob: BlobRef) -> Result<Option<Option<PathScores>>, AggregateError> {
        let documents = self.parts.slice_documents as usize;
        let bytes = self.bytes(blob)?;
        let scores = |bytes: Vec<u8>| PathScores::decode(&bytes, self.paths, documents).ok();
        let one = |scores: Vec<PathScores>| <[PathScores; 1]>::try_from(scores).ok().map(|[one]| one);
        Ok(bytes.map(|bytes| scores(bytes).and_then(one)))
    }

    /// Whether the scores of these contributions match an update; `None` if a blob is absent.
    pub fn audit(&self, contributions: &[Counted], average: BlobRef) -> Result<Option<bool>, AggregateError> {
        let mut all = BTreeMap::new();
        for counted in contributions {
            let Some(scores) = self.scores(counted.blob)? else { return Ok(None) };
            let Some(scores) = scores else { return Ok(Some(false)) };
            if counted.norm != 0 {
                return Ok(Some(false));
            }
            if scores.path == counted.path && !scores.nats.is_empty() {
                all.insert(scores.path, scores);
            }
        }
        let told = PathScores::encode(&all.into_values().collect::<Vec<_>>());
        Ok(Some(BlobRef::of(&told) == average))
    }

    /// `None` if it is absent, or here with another size for another purpose.
    fn bytes(&self, blob: BlobRef) -> Result<Option<Vec<u8>>, AggregateError> {
        match self.blobs.get(blob.hash, blob.bytes) {
            Err(BlobError::TooLarge { .. }) => Ok(None),
            found => Ok(found?),
        }
    }

    /// Whether a blob is here and is a state of the router.
    pub fn is_state(&self, state: BlobRef) -> Result<bool, AggregateError> {
        let bytes = self.bytes(state)?;
        Ok(bytes.is_some_and(|bytes| self.manifest.router_state(&bytes).is_ok()))
    }

    /// The state that follows from another and scores; `None` if the scores are invalid.
    pub fn apply(&mut self, from: BlobRef, average: &[u8]) -> Result<Option<Vec<u8>>, AggregateError> {
        let (run, module) = (&self.manifest.config, self.module);
        let (width, overlap) = (run.model.width, run.routing.overlap);
        let gone = AggregateError::StateGone { module, state: from.hash };
        let before = self.blobs.get(from.hash, from.bytes)?.ok_or(gone)?;
        let broken = |reason: String| AggregateError::Router { module, reason };
        let before = match self.manifest.router_state(&before) {
            Ok(before) => before,
            Err(error) => {
                tracing::warn!(%module, %error, "a state that was taken over is none");
                return Ok(None);
            }
        };
        let scores = match PathScores::decode(average, self.paths, self.parts.slice_documents as usize) {
            Ok(scores) => scores,
            Err(error) => {
                tracing::warn!(%module, %error, "an average cannot be applied");
                return Ok(None);
            }
        };
        let due = run.routing.reshard.contains(&(before.rounds + 1));
        if due && self.atlas.is_none() {
            let blob = self.parts.atlas;
            let bytes = self.blobs.get(blob.hash, blob.bytes)?;
            let bytes = bytes.ok_or_else(|| broken(format!("the atlas {} is not in the store", blob.hash)))?;
            self.atlas = Some(self.manifest.decode_atlas(&bytes).map_err(|error| broken(error.to_string()))?);
        }
        let (after, why) = match &self.atlas {
            Some(atlas) if due => before.next(&scores, atlas, overlap),
            _ => (before.passed(), None),
        };
        match why {
            Some(why) => tracing::warn!(round = after.rounds, %why, "the shards stay as they are"),
            None if due => tracing::info!(router = after.fits, sizes = ?after.sizes, "the text is resharded"),
            None => {}
        }
        Ok(Some(after.encode(width)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{PathId, Phase};
    use crate::peer::tests::tiny_run::{Tiny, machine};
    use crate::peer::trainer::device_scheduler::DeviceScheduler;
    use crate::peer::trainer::task::{PhaseTask, Task, TrainerReport};
    use crate::peer::trainer::text::{Purpose, Texts};
    use crate::peer::trainer::thread::TrainerThread;
    use crate::peer::trainer::{Phases, work};
    use crate::protocol::Part;
    use crate::protocol::journal::record::Finished;
    use crate::protocol::wire::inner_checkpoint::BaseVersion;
    use crate::protocol::wire::message::GENESIS;

    /// A run that reshards before its second phase, and its trainer.
    struct Bench {
        tiny: Tiny,
        manifest: Arc<Manifest>,
        trainer: TrainerThread,
    }

    impl Bench {
        fn new() -> Self {
            let tiny = Tiny::shared_out_anew();
            let manifest = Arc::new(tiny.decoded.clone());
            let work = work(manifest.clone(), Phases::of(&manifest), machine(), tiny.blobs.clone());
            let trainer = TrainerThread::start(work, Arc::new(DeviceScheduler::default())).unwrap();
            Self { tiny, manifest, trainer }
        }

        fn genesis(&self, module: ModuleId) -> BlobRef {
            self.manifest.genesis.iter().find(|(known, _)| *known == module).unwrap().1
        }

        /// A phase of a path, with this state of the router in place of the first.
        async fn train(&mut self, path: PathId, phase: u64, router: BlobRef) -> Finished {
            let module = self.manifest.config.router_module().unwrap();
            let modules = self.manifest.plan().unwrap().slots.grid().modules_of(path);
            let start = modules.into_iter().map(|other| {
                let from = BaseVersion { module: other, version: Version(phase), update: GENESIS };
                (from, if other == module { router } else { self.genesis(other) })
            });
            let (start, phase) = (start.collect::<Vec<_>>(), Phase(phase));
            let part = Part::whole(2, start.iter().map(|(from, _)| from.module).collect());
            let task = Task::Train(PhaseTask {
                path,
                drawn: path,
                trainer_number: 0,
                phase,
                part,
                start,
                trainer: None,
                resume: None,
            });
            assert!(self.trainer.begin(task));
            loop {
                match self.trainer.next_report().await.unwrap() {
                    TrainerReport::Trained(finished) => return finished,
                    TrainerReport::Failed(error) => panic!("{error:#}"),
                    _ => {}
                }
            }
        }

        fn blob(&self, blob: BlobRef) -> Vec<u8> {
            self.tiny.blobs.get(blob.hash, blob.bytes).unwrap().unwrap()
        }

        fn counted(&self, path: u32, blob: BlobRef) -> Counted {
            Counted { path: PathId(path), parent: Version(0), steps: 1, uncapped: 1, weight: 1, norm: 0, blob }
        }
    }

    #[tokio::test]
    async fn paths_score_the_slice_and_train_on_what_follows_from_all_scores() {
        let mut bench = Bench::new();
        let mut rounds = RouterRounds::new(bench.manifest.clone(), bench.tiny.blobs.clone()).unwrap();
        let first = bench.genesis(rounds.module());
        let (a, b) = (bench.train(PathId(0), 0, first).await, bench.train(PathId(1), 0, first).await);
        let scores = [&a, &b].map(|finished| finished.offers.last().unwrap().1);
        let counted = [bench.counted(0, scores[0]), bench.counted(1, scores[1])];

        rounds.open(Version(1));
        assert!(rounds.accumulate(Version(1), scores[0].hash).unwrap());
        assert!(rounds.accumulate(Version(1), scores[1].hash).unwrap());
        let garbage = bench.tiny.blobs.put(b"no scores").unwrap().hash;
        assert!(!rounds.accumulate(Version(1), garbage).unwrap());
        assert!(!rounds.accumulate(Version(2), scores[0].hash).unwrap(), "no such round is open");
        assert!(rounds.accumulate(Version(1), scores[1].hash).unwrap(), "as of a round before, in which it was late");
        let twice = [counted[0], counted[1], Counted { parent: Version(1), ..counted[1] }];
        let (average, made) = rounds.combine(Version(1), first, &twice).unwrap();
        assert_eq!(rounds.apply(first, &average).unwrap().as_ref(), Some(&made), "every member makes the same of it");
        assert_eq!(rounds.audit(&twice, BlobRef::of(&average)).unwrap(), Some(true));
        assert_eq!(rounds.audit(&counted[..1], BlobRef::of(&average)).unwrap(), Some(false));
        assert_eq!(rounds.apply(first, b"no scores").unwrap(), None);
        let mut absurd = bench.manifest.router_state(&made).unwrap();
        absurd.rounds = u64::MAX;
        for garbage in [vec![7; made.len()], absurd.encode(bench.manifest.config.model.width)] {
            let garbage = bench.tiny.blobs.put(&garbage).unwrap();
            assert_eq!(rounds.apply(garbage, &average).unwrap(), None, "a Byzantine peer's state stops nobody");
        }

        let (before, after) =
            (bench.manifest.router_state(&bench.blob(first)).unwrap(), bench.manifest.router_state(&made).unwrap());
        assert_eq!((before.rounds, before.fits, after.rounds, after.fits), (0, 0, 1, 1));
        assert_eq!(before.sizes.iter().sum::<u64>(), after.sizes.iter().sum::<u64>());
        assert_ne!(before.router, after.router);
        let mut texts = Texts::new(bench.manifest.clone(), bench.tiny.blobs.clone());
        for purpose in [Purpose::Train, Purpose::HeldOut, Purpose::Test] {
            let mut all = |router| {
                let mut text = |path| texts.of(PathId(path), purpose, Some(router)).unwrap();
                let shards = [text(0), text(1)];
                let mut documents: Vec<Vec<u32>> =
                    shards.iter().flat_map(|set| set.documents().map(|own| set.span(own))).collect();
                documents.sort();
                (shards.map(|set| set.len() as u64), documents)
            };
            let ((_, created), (sizes, shared)) = (all(&before), all(&after));
            assert_eq!(created, shared, "{purpose:?}: every document is on one path");
            assert!(purpose != Purpose::Train || sizes.to_vec() == after.sizes);
        }

        // The next phase trains on other text, and has no scores.
        let state = bench.tiny.blobs.put(&made).unwrap();
        let (on, off) = (bench.train(PathId(0), 1, state).await, bench.train(PathId(0), 1, first).await);
        assert_ne!(on.offers[0].1, off.offers[0].1);
        let silent = bench.blob(on.offers.last().unwrap().1);
        assert_eq!(silent, PathScores::encode(&[PathScores { path: PathId(0), nats: Vec::new() }]));
        bench.trainer.end(std::time::Duration::from_secs(60));
    }

    #[tokio::test]
    async fn nobody_speaks_for_another_path_and_a_round_without_scores_changes_nothing() {
        let mut bench = Bench::new();
        let mut rounds = RouterRounds::new(bench.manifest.clone(), bench.tiny.blobs.clone()).unwrap();
        let first = bench.genesis(rounds.module());
        let finished = bench.train(PathId(0), 0, first).await;
        let scores = finished.offers.last().unwrap().1;
        rounds.open(Version(1));
        assert!(rounds.accumulate(Version(1), scores.hash).unwrap());
        let (average, made) = rounds.combine(Version(1), first, &[bench.counted(1, scores)]).unwrap();
        assert_eq!(average, PathScores::encode(&[]), "path 1 offers what path 0 scored");
        let state = bench.manifest.router_state(&made).unwrap();
        assert_eq!((state.rounds, state.fits), (1, 0), "the text stays as it is");
        assert!(rounds.combine(Version(1), first, &[]).is_err(), "the round is over");
        bench.trainer.end(std::time::Duration::from_secs(60));
    }
}
