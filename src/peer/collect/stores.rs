//! Collecting from the stores of stopped peers on this disk, which stay unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::names::{BlobRef, ModuleId, PathId, PeerKey, RunId};
use crate::peer::client::heads::best_first;
use crate::peer::collect::CollectError;
use crate::peer::collected::writing::{Summary, Unfinished};
use crate::peer::collected::{ANCESTOR, PRETRAINED, ROUTER, TOKENIZER};
use crate::peer::folder::store_folder;
use crate::peer::folder::{amend_from, present_folder};
use crate::peer::manifest::Manifest;
use crate::protocol::limits::MAX_CONTROL_BYTES;
use crate::protocol::wire::encoding;
use crate::protocol::wire::message::Head;
use crate::protocol::{Node, Record, RunPlan};
use crate::store::{BlobError, StoreReader};

/// The highest amendment of a run that these folders have.
fn amendment_in(manifest: &[u8], folders: &[PathBuf]) -> Option<Vec<u8>> {
    let (mut manifest, run) = Manifest::decode(manifest).ok()?;
    folders.iter().filter_map(|folder| amend_from(folder, &mut manifest, run)).last()
}

/// Writes the newest version of every module in these peers' folders to `target`.
pub fn collect_from_stores(manifest: &[u8], folders: &[PathBuf], target: &Path) -> Result<Summary, CollectError> {
    let mut writer = Unfinished::begin(target)?.of_run(manifest, amendment_in(manifest, folders).as_deref())?;
    let mut stores = Stores::open(folders, writer.run())?;
    writer.put_shard_table(&stores.part(writer.manifest.shards.table, "the shard table")?)?;
    stores.look(folders, &writer.manifest.plan()?)?;
    let parts = &writer.manifest;
    writer.put(TOKENIZER, &stores.part(parts.tokenizer, "the tokenizer")?)?;
    writer.put(ROUTER, &stores.part(parts.router, "the router")?)?;
    writer.put(ANCESTOR, &stores.part(parts.ancestor, "the ancestor")?)?;
    if let Some(files) = parts.pretrained {
        writer.put(PRETRAINED, &stores.part(files, "the settings of the pretrained model")?)?;
    }
    for module in stores.heads.keys() {
        for found in stores.states(*module) {
            let (bytes, head) = found?;
            match writer.put_state(*module, &bytes, head)? {
                Ok(()) => break,
                Err(reason) => tracing::warn!(%module, reason, "a state is skipped"),
            }
        }
    }
    let modules = writer.manifest.genesis.iter().map(|(module, _)| *module).collect::<Vec<ModuleId>>();
    let missing = writer.missing(&modules);
    if !missing.is_empty() {
        return Err(CollectError::InNoFolder { modules: missing, folders: folders.len() });
    }
    let apart = writer.manifest.config.paths_end_apart();
    for (path, _, trainer) in stores.trainers.clone().into_iter().filter(|_| apart) {
        if let Some(bytes) = stores.find(trainer)?.filter(|_| !writer.has_own(path)) {
            writer.put_best(path, &bytes)?;
        }
    }
    if writer.manifest.share_text {
        for path in writer.manifest.config.grid().map_err(crate::peer::manifest::ManifestError::from)?.paths() {
            let test = writer.manifest.shard(path).test;
            writer.put_test(path, stores.find(test)?.as_deref())?;
        }
    }
    Ok(writer.finish()?)
}

pub(super) struct Stores {
    readers: Vec<StoreReader>,
    /// For each module, newest first, with the reader that has it.
    heads: BTreeMap<ModuleId, Vec<(Head, usize)>>,
    /// Trainer states of paths; those of standbys come after those of holders.
    trainers: BTreeSet<(PathId, bool, BlobRef)>,
}

impl Stores {
    pub fn open(folders: &[PathBuf], run: RunId) -> Result<Self, CollectError> {
        let mut readers = Vec::new();
        for folder in folders {
            let reader = StoreReader::open(&store_folder(folder))?;
            if reader.run != run {
                return Err(CollectError::OtherRun { folder: folder.clone(), found: reader.run, expected: run });
            }
            readers.push(reader);
        }
        Ok(Self { readers, heads: BTreeMap::new(), trainers: BTreeSet::new() })
    }

    /// Reads the heads of modules from the journals.
    pub fn look(&mut self, folders: &[PathBuf], plan: &RunPlan) -> Result<(), CollectError> {
        for (index, (folder, reader)) in folders.iter().zip(&self.readers).enumerate() {
            let records = reader.records.iter().map(|bytes| encoding::decode::<Record>(bytes));
            let records: Result<Vec<Record>, _> = records.collect();
            let records = records.map_err(|source| CollectError::Record { folder: folder.clone(), source })?;
            // The chains do not depend on the key of the store's peer.
            let node = Node::restore(PeerKey([0; 32]), plan.clone(), records);
            let trainer = |path| Some((path, !node.holds(path), node.trainer(path)?));
            self.trainers.extend(node.paths().into_iter().filter_map(trainer));
            for (module, chain) in node.chains().filter(|(module, _)| plan.slots.grid().contains(*module)) {
                self.heads.entry(module).or_default().push((chain.head(), index));
            }
        }
        self.heads.values_mut().for_each(|heads| best_first(heads));
        Ok(())
    }

    fn find(&self, blob: BlobRef) -> Result<Option<Vec<u8>>, CollectError> {
        for reader in &self.readers {
            if let Some(bytes) = present(reader.blob(blob))? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// The states of a module that some disk has undamaged, newest first.
    pub fn states(&self, module: ModuleId) -> impl Iterator<Item = Result<(Vec<u8>, Head), CollectError>> {
        let candidates = self.heads.get(&module).into_iter().flatten();
        candidates.filter_map(|(head, reader)| {
            let bytes = present(self.readers[*reader].blob(head.state)).transpose()?;
            Some(bytes.map(|bytes| (bytes, *head)))
        })
    }

    pub fn part(&self, blob: BlobRef, what: &'static str) -> Result<Vec<u8>, CollectError> {
        self.find(blob)?.ok_or(CollectError::PartInNoFolder(what))
    }
}

/// A blob that is damaged on one disk may be intact on another.
fn present(read: Result<Option<Vec<u8>>, BlobError>) -> Result<Option<Vec<u8>>, CollectError> {
    match read {
        Err(error @ (BlobError::Changed { .. } | BlobError::TooLarge { .. })) => {
            tracing::warn!(%error, "passed over");
            Ok(None)
        }
        other => Ok(other?),
    }
}

/// The peers' folders for a given folder: itself, or its subfolders.
pub fn peers_below(folder: &Path) -> Vec<PathBuf> {
    let is_peer = |folder: &Path| store_folder(folder).join("run").is_file();
    let present = present_folder(folder);
    if is_peer(&present) {
        return vec![present];
    }
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut peers: Vec<PathBuf> = entries.filter_map(|entry| Some(present_folder(&entry.ok()?.path()))).collect();
    peers.retain(|folder| is_peer(folder));
    peers.sort();
    peers
}

/// The manifest of a peer's run, `manifest.json` in its folder or in the one above.
pub fn manifest_of(folder: &Path) -> Result<Vec<u8>, CollectError> {
    let run = StoreReader::open(&store_folder(folder))?.run;
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let above = absolute.parent().map(Path::to_owned).unwrap_or_default();
    let is_the_runs = |bytes: &Vec<u8>| RunId(*blake3::hash(bytes).as_bytes()) == run;
    let read = |folder: &Path| {
        let file = folder.join(crate::peer::collected::MANIFEST);
        let size = fs::metadata(&file).ok()?.len();
        if size > MAX_CONTROL_BYTES as u64 { None } else { fs::read(file).ok() }
    };
    let bytes = [&absolute, &above].into_iter().filter_map(|folder| read(folder)).find(is_the_runs);
    let bytes = bytes.ok_or_else(|| CollectError::NoManifest {
        folder: folder.to_owned(),
        reason: format!("there is no manifest.json of run {run} in it, nor in the folder above"),
    })?;
    Manifest::decode(&bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DeviceChoice;
    use crate::names::Phase;
    use crate::peer::Collected;
    use crate::peer::inference::client::{InferenceClient, Local};
    use crate::peer::tests::tiny_run::Tiny;
    use crate::peer::trainer::path_state::{Best, PathState};
    use crate::query::{QueriedModel, TokenSpan};
    use crate::store::StoreFolder;

    fn nothing_is_left(tiny: &Tiny) {
        let names = fs::read_dir(tiny.home.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        assert!(!names.iter().any(|name| name.contains("all")), "{names:?}");
    }

    #[test]
    fn the_newest_of_several_peers_is_taken_for_each_module() {
        let tiny = Tiny::create(true);
        let a = tiny.peer("run/a", &[("0.0", 2), ("1.0", 1)]);
        let b = tiny.peer("run/b", &[("0.1", 0), ("1.0", 2)]);
        assert_eq!(peers_below(&tiny.home.path().join("run")), [a.clone(), b.clone()]);
        assert_eq!(peers_below(&a), std::slice::from_ref(&a));
        assert_eq!(manifest_of(&b).unwrap(), tiny.manifest);
        let target = tiny.home.path().join("all");
        let summary = collect_from_stores(&tiny.manifest, &[a, b], &target).unwrap();
        let versions: Vec<u64> = summary.modules.values().map(|module| module.version).collect();
        assert_eq!((versions, summary.versions()), (vec![2, 0, 2], (0, 2)));
        assert!(summary.paths_without_text.is_empty());
        Collected::open(&target).unwrap();
    }

    #[test]
    fn a_path_that_was_best_before_the_end_is_collected_as_it_was_then() {
        let tiny = Tiny::stopping_early();
        let counts = tiny.decoded.level_counts();
        let a = tiny.peer("a", &[("0.0", 2), ("1.0", 2), ("0.1", 2)]);
        let mut state = PathState::fresh(None, &counts, 0);
        let mut store = StoreFolder::open(&store_folder(&a), tiny.run).unwrap();
        let levels: Vec<Vec<f32>> = counts.iter().map(|count| vec![0.5; *count]).collect();
        for (path, settled) in [(PathId(0), true), (PathId(1), false)] {
            state.best = Some(Best { phase: Phase(1), nats: 3.5, settled, levels: levels.clone() });
            let trainer = store.blobs.put(&state.encode()).unwrap();
            for record in [Record::Lease { path, held: true, standby: false }, Record::Trainer { path, trainer }] {
                store.journal.append(&encoding::encode(&record).unwrap()).unwrap();
            }
        }
        drop(store);
        let target = tiny.home.path().join("all");
        let summary = collect_from_stores(&tiny.manifest, std::slice::from_ref(&a), &target).unwrap();
        assert_eq!(Vec::from_iter(summary.best_before), [("0".to_owned(), 1)], "the other has not been read yet");
        let collected = Collected::open(&target).unwrap();
        assert_eq!(collected.levels_of(PathId(0)).unwrap(), levels);
        assert!(collected.best(PathId(1)).is_none() && collected.levels_of(PathId(1)).unwrap() != levels);
        let mut players = Local::new(collected, DeviceChoice::Cpu).unwrap();
        let piece = [TokenSpan { tokens: (0..9).collect(), from: 3 }];
        let nats = players.nats(&[0, 1].map(|path| (QueriedModel::Path(PathId(path)), &piece[..]))).unwrap();
        assert!(nats[0] != nats[1], "they have the same ancestor");

        let file = target.join("best/0.safetensors");
        let mut bytes = fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&file, &bytes).unwrap();
        let error = Collected::open(&target).unwrap().levels_of(PathId(0)).unwrap_err().to_string();
        assert!(error.contains("best/0.safetensors: its parameters have hash"), "{error}");
        // It is a collected run, and may be replaced.
        collect_from_stores(&tiny.manifest, &[a], &target).unwrap();
    }

    #[test]
    fn a_module_that_nobody_holds_is_named_and_nothing_is_written() {
        let tiny = Tiny::create(false);
        let peer = tiny.peer("peer", &[("0.0", 2), ("1.0", 1)]);
        let target = tiny.home.path().join("all");
        let error = collect_from_stores(&tiny.manifest, &[peer], &target).unwrap_err().to_string();
        assert_eq!(error, "none of the 1 folders holds module 0.1; add the folder of a peer that holds it");
        nothing_is_left(&tiny);
    }

    #[test]
    fn a_running_peer_another_run_and_what_is_no_peer_are_told_apart() {
        let tiny = Tiny::create(false);
        let peer = tiny.peer("peer", &[("0.0", 0)]);
        let target = tiny.home.path().join("all");
        let collect =
            |folder: &Path| collect_from_stores(&tiny.manifest, &[folder.to_owned()], &target).unwrap_err().to_string();
        let running = StoreFolder::open(&store_folder(&peer), tiny.run).unwrap();
        assert!(collect(&peer).contains("in use by process "));
        drop(running);
        let other = tiny.home.path().join("other");
        drop(StoreFolder::open(&store_folder(&other), RunId([9; 32])).unwrap());
        assert!(collect(&other).contains(", not run"));
        assert!(manifest_of(&other).unwrap_err().to_string().contains("no manifest.json of run 09090909"));
        assert!(collect(tiny.home.path()).contains("not the store of a peer"));
        nothing_is_left(&tiny);
    }

    #[test]
    fn a_state_that_rotted_on_one_disk_is_taken_from_another() {
        let tiny = Tiny::create(false);
        let modules = [("0.0", 1), ("0.1", 1), ("1.0", 1)];
        let (a, b) = (tiny.peer("a", &modules), tiny.peer("b", &modules));
        let target = tiny.home.path().join("all");
        let summary = collect_from_stores(&tiny.manifest, &[a.clone(), b.clone()], &target).unwrap();
        let hash = summary.modules["0.0"].state_hash.to_string();
        let blob = store_folder(&a).join("blobs").join(&hash[..2]).join(&hash);
        fs::write(&blob, b"rot").unwrap();
        let again = collect_from_stores(&tiny.manifest, &[a.clone(), b], &target).unwrap();
        assert_eq!(again.modules["0.0"].state_hash.to_string(), hash);
        assert_eq!(fs::read(&blob).unwrap(), b"rot");
        assert!(matches!(collect_from_stores(&tiny.manifest, &[a], &target), Err(CollectError::InNoFolder { .. })));
        Collected::open(&target).unwrap();
    }
}
