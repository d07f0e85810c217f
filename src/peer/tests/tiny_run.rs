//! A run small enough to create in a test, and peers' folders with parts of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::config::run::tests::SMALL;
use crate::config::{AdapterConfig, DeviceChoice, LevelConfig, MachineConfig, RoutingMethod, RunConfig};
use crate::model::initial_levels;
use crate::names::{BlobRef, ModuleId, PathId, PeerKey, RunId, Term, Version};
use crate::network::{Identity, Multiaddr, NetworkConfig, NetworkHandle};
use crate::outer::{ModuleState, Share};
use crate::peer::StoredBlobs;
use crate::peer::collected::MANIFEST;
use crate::peer::create::{CreatedRun, Plan, StartFrom, TextFrom, create_run};
use crate::peer::driver::events::PeerEvent;
use crate::peer::folder::store_folder;
use crate::peer::manifest::Manifest;
use crate::peer::start::assembly::{Peer, PeerPlan};
use crate::peer::trainer::device_scheduler::DeviceScheduler;
use crate::protocol::Record;
use crate::protocol::module::chain::Chain;
use crate::protocol::wire::encoding;
use crate::protocol::wire::message::{Counted, SignedUpdate, Update};
use crate::seed::Seed;
use crate::store::{BlobStore, LockedStore, StoreFolder};
use crate::text::{CorpusSource, TokenSet};

/// Two phases of two steps.
fn run(vocabulary: usize) -> RunConfig {
    let mut run = RunConfig::from_toml(SMALL).unwrap();
    run.name = "tiny".to_owned();
    run.text.test_share = 0.2;
    run.model.vocabulary = vocabulary;
    run.routing.prefix_tokens = 8;
    let training = &mut run.training;
    (training.inner_steps, training.phases, training.ancestor_steps, training.learning_rate) = (2, 2, 3, 1e-2);
    run
}

/// Documents of two kinds, which k-means can separate.
pub fn documents() -> Vec<String> {
    some_documents(120)
}

fn some_documents(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| match number % 2 {
            0 => format!("fn item_{number}(value: u32) -> u32 {{ value * {number} + {} }}", number * 7 % 31).repeat(2),
            _ => format!("On day {number} the river rose by {} feet, and the old bridge held again. ", number % 13)
                .repeat(3),
        })
        .collect()
}

/// A created run.
pub struct Tiny {
    /// The folder of everything, removed at the end.
    pub home: TempDir,
    /// Its manifest's bytes.
    pub manifest: Vec<u8>,
    /// The same, decoded.
    pub decoded: Manifest,
    pub run: RunId,
    pub blobs: BlobStore,
    /// All its training text.
    pub train: TokenSet,
    /// All its test text.
    pub test: TokenSet,
}

impl Tiny {
    pub fn create(share_text: bool) -> Self {
        Self::with_vocabulary(300, share_text)
    }

    /// The text has words for fewer entries than a large vocabulary asks for.
    pub fn with_vocabulary(vocabulary: usize, share_text: bool) -> Self {
        Self::of(&run(vocabulary), 120, share_text)
    }

    /// Paths begin with random text and reshard before the second phase.
    pub fn shared_out_anew() -> Self {
        let mut run = run(300);
        (run.routing.method, run.routing.reshard) = (RoutingMethod::Random, vec![1]);
        Self::of(&run, 500, true)
    }

    /// Adapters beside a made-up model.
    pub fn with_adapters() -> Self {
        let mut run = run(300);
        run.model.adapter = Some(AdapterConfig { rank: 2, alpha: None });
        run.levels[0].parts = vec!["adapter.0".to_owned()];
        run.levels[1].parts = vec!["adapter.1".to_owned()];
        let of = |levels: &[LevelConfig], seed| initial_levels(&run.model, levels, Seed::root(seed));
        let frozen = of(&[run.frozen().unwrap()], 2).concat().into();
        let start = StartFrom::Ancestor { levels: of(&run.levels, 1), frozen, pretrained: None };
        Self::from(&run, (120, true), start)
    }

    /// With early stopping.
    pub fn stopping_early() -> Self {
        let mut run = run(300);
        (run.training.early_stopping, run.text.held_out_share) = (true, 0.2);
        Self::of(&run, 120, true)
    }

    fn of(run: &RunConfig, count: usize, share_text: bool) -> Self {
        Self::from(run, (count, share_text), StartFrom::Nothing)
    }

    fn from(run: &RunConfig, (count, share_text): (usize, bool), start: StartFrom) -> Self {
        let home = tempfile::tempdir().unwrap();
        let corpus = home.path().join("corpus.jsonl");
        let line = |text: &String| format!("{}\n", serde_json::json!({ "text": text }));
        std::fs::write(&corpus, some_documents(count).iter().map(line).collect::<String>()).unwrap();
        let folder = home.path().join("created");
        let plan = Plan {
            run,
            machine: &machine(),
            folder: &folder,
            then: None,
            after: None,
            creator: None,
            text: TextFrom::Corpus { corpus: CorpusSource::Paths(vec![corpus]), test: None, tokenizer: None },
            share_text,
            start,
        };
        let created = create_run(plan, &DeviceScheduler::default(), &AtomicBool::new(false), &mut |_| {}).unwrap();
        let CreatedRun { store, train, test, bytes: manifest, manifest: decoded, id: run, .. } = created;
        Self { home, train, test, manifest, decoded, run, blobs: store.blobs }
    }

    /// The folder of a stopped peer that holds these modules at these versions.
    pub fn peer(&self, name: &str, modules: &[(&str, u64)]) -> PathBuf {
        let folder = self.home.path().join(name);
        let mut store = StoreFolder::open(&store_folder(&folder), self.run).unwrap();
        std::fs::write(folder.join(MANIFEST), &self.manifest).unwrap();
        let shards = self.decoded.shards.listed().iter().flat_map(|shard| [shard.train, shard.held_out, shard.test]);
        let genesis = self.decoded.genesis.iter().map(|(_, state)| *state);
        for blob in self.decoded.for_everybody().into_iter().chain(shards).chain(genesis) {
            store.blobs.put(&self.blob(blob)).unwrap();
        }
        for (module, version) in modules {
            for record in self.history(module.parse().unwrap(), *version, &store.blobs) {
                store.journal.append(&encoding::encode(&record).unwrap()).unwrap();
            }
        }
        folder
    }

    /// Starts the peer of a folder on loopback, sharing the device with others.
    pub async fn start(
        &self,
        folder: PathBuf,
        creator: bool,
        scheduler: &Arc<DeviceScheduler>,
    ) -> (Peer, NetworkHandle, Multiaddr, mpsc::Receiver<PeerEvent>) {
        self.start_on(machine(), folder, creator, scheduler).await
    }

    /// The same, with another profile of the machine.
    pub async fn start_on(
        &self,
        machine: MachineConfig,
        folder: PathBuf,
        creator: bool,
        scheduler: &Arc<DeviceScheduler>,
    ) -> (Peer, NetworkHandle, Multiaddr, mpsc::Receiver<PeerEvent>) {
        let (identity, access) = (Identity::generate(), StoredBlobs::default());
        let listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
        let config = NetworkConfig { listen, ..NetworkConfig::visitor(identity.clone()) };
        let (network, network_events) = crate::network::start(config, Arc::new(access.clone())).await.unwrap();
        let address = network.join_addresses().await.unwrap().remove(0);
        let (told, news) = mpsc::channel(1_000);
        let plan = PeerPlan {
            folder: folder.clone(),
            store: LockedStore::open(&store_folder(&folder)).unwrap(),
            manifest: self.manifest.clone(),
            identity,
            machine,
            scheduler: scheduler.clone(),
            network: network.clone(),
            network_events,
            access,
            contacts: Vec::new(),
            creator,
            event_sink: Arc::new(move |news| drop(told.try_send(news))),
            access_control: None,
        };
        (Peer::start(plan).await.unwrap(), network, address, news)
    }

    fn blob(&self, blob: BlobRef) -> Vec<u8> {
        self.blobs.get(blob.hash, blob.bytes).unwrap().unwrap()
    }

    /// The journal of a member about a module with this many updates. The last state is put into the store.
    fn history(&self, module: ModuleId, versions: u64, blobs: &BlobStore) -> Vec<Record> {
        let (_, genesis) = self.decoded.genesis.iter().find(|(known, _)| *known == module).unwrap();
        let count = self.decoded.level_counts()[usize::from(module.level)];
        let mut state = ModuleState::decode(&self.blob(*genesis), module, count).unwrap();
        let mut chain = Chain::genesis(*genesis);
        let mut records = vec![Record::Genesis { module, state: *genesis }];
        for version in 1..=versions {
            state.apply(&vec![0.01; count], Share::FULL, 0.7, 0.9).unwrap();
            let counted = Counted {
                path: PathId(module.expert),
                parent: chain.head().version,
                steps: 1,
                uncapped: 1,
                weight: 1,
                norm: 0,
                blob: *genesis,
            };
            let update = Update {
                module,
                term: Term(1),
                owner: PeerKey([1; 32]),
                version: Version(version),
                parent: chain.head().update,
                contributions: vec![counted].into(),
                norm: 0,
                average: *genesis,
                state: blobs.put(&state.encode()).unwrap(),
                weight: version,
            };
            let signed = SignedUpdate { update, signature: Vec::new() };
            chain.push(signed.clone());
            records.push(Record::Head(signed));
        }
        records
    }
}

/// A machine for tests.
pub fn machine() -> MachineConfig {
    MachineConfig { device: DeviceChoice::Cpu, threads: 1, ..MachineConfig::default() }
}
