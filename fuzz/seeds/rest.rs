//! What only a program with libtorch and sockets reads: manifests and what they name, the disk of a peer, addresses.

use pathswarm::access::invitation::Grant;
use pathswarm::config::{OuterMode, RunConfig, level_parameters};
use pathswarm::experiment::checkpoint::{ArmCheckpoint, ArmState, Best};
use pathswarm::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Phase, RunId, Version};
use pathswarm::network::{Ban, Identity, Multiaddr};
use pathswarm::outer::ModuleState;
use pathswarm::peer::access::invitation_token::to_text;
use pathswarm::peer::create::dense::{Dense, DenseCheckpoint};
use pathswarm::peer::driver::handle::Order;
use pathswarm::peer::manifest::shard_table::{Shard, Shards, encode_table};
use pathswarm::peer::manifest::{FORMAT_VERSION, Manifest, Resharding};
use pathswarm::peer::status::PeerStatus;
use pathswarm::peer::status::report::encode;
use pathswarm::peer::trainer::path_state::{Best as BestOfPath, Own, PathState, PhaseState};
use pathswarm::protocol::wire::encoding::WIRE_VERSION;
use pathswarm::routing::resharding::RouterState;
use pathswarm::store::{Checkpoint, Journal, ModuleCheckpoint};
use pathswarm_fuzz::TINY_RUN;

use super::Seeds;
use super::files::all_in;
use super::messages::tokens;

const BLOB: BlobRef = BlobRef { hash: BlobHash([3; 32]), bytes: 100 };

/// The tiny run with something changed in it.
fn run(change: impl FnOnce(&mut RunConfig)) -> RunConfig {
    let mut run = RunConfig::from_toml(TINY_RUN).expect("a run");
    change(&mut run);
    run
}

fn shards() -> Vec<Shard> {
    vec![Shard { train: BLOB, held_out: BLOB, test: BLOB, sequences: 7 }; 2]
}

fn manifest(config: RunConfig) -> Vec<u8> {
    let counts: Vec<usize> = config.levels.iter().map(|level| level_parameters(&config.model, level)).collect();
    let slots = config.slots().expect("the run has a grid");
    let state_bytes = |module: &ModuleId| match counts.get(usize::from(module.level)) {
        Some(count) => ModuleState::size_bytes(*count, config.outer.mode),
        None => RouterState::size_bytes(2, config.model.width),
    };
    let genesis = |module| (module, BlobRef { bytes: state_bytes(&module), ..BLOB });
    let resharding = Resharding { atlas: BLOB, slice: BLOB, slice_documents: 4 };
    let manifest = Manifest {
        format_version: FORMAT_VERSION,
        wire_version: WIRE_VERSION,
        corpus: BLOB.hash,
        test_corpus: BLOB.hash,
        share_text: true,
        tokenizer: BLOB,
        router: BLOB,
        shard_index: BLOB,
        test_routes: BLOB,
        ancestor: BLOB,
        pretrained: config.admission.is_open().then_some(BLOB),
        shards: Shards::in_table(shards(), BlobRef::of(&encode_table(&shards()))),
        resharding: config.router_module().map(|_| resharding),
        genesis: slots.grid().modules().into_iter().map(genesis).collect(),
        then: (!config.admission.is_open()).then(|| Box::new(config.clone())),
        after: Some(RunId([5; 32])),
        creator: (!config.admission.is_open()).then_some(PeerKey([1; 32])),
        amendment: None,
        config,
    };
    let bytes = manifest.encode().expect("a small run");
    Manifest::decode(&bytes).expect("what this program has made is a manifest");
    bytes
}

fn manifests(seeds: &mut Seeds) {
    let table = encode_table(&shards());
    seeds.add("manifest", manifest(run(|_| {})));
    seeds.add("manifest", manifest(run(|run| run.routing.reshard = vec![1])));
    seeds.add("manifest", manifest(run(|run| run.outer.mode = OuterMode::Asynchronous)));
    let by_invitation = format!("admission = \"invite\"\n{TINY_RUN}");
    seeds.add("manifest", manifest(RunConfig::from_toml(&by_invitation).expect("a run")));
    seeds.add("shards", [table, vec![2, 0]].concat());
}

fn status_reports(seeds: &mut Seeds) -> std::io::Result<()> {
    let report = encode(PeerStatus::default()).map_err(std::io::Error::other)?;
    let json = zstd::bulk::decompress(&report, 1 << 16)?;
    seeds.add("status_report", report);
    seeds.add("status_report", [vec![0], json].concat());
    Ok(())
}

fn path_states(seeds: &mut Seeds) -> std::io::Result<()> {
    let sizes = [2, 1];
    let levels = || vec![vec![0.5, -1.0], vec![2.0]];
    let fresh = |drawn| PathState::fresh(drawn, &sizes, 5);
    let best = BestOfPath { phase: Phase(1), nats: 2.5, settled: true, levels: levels() };
    let own = Own { base_states: vec![BLOB.hash; 2], levels: levels() };
    let states = [
        fresh(None),
        fresh(Some(PathId(1))),
        PathState { best: Some(best), ..fresh(None) },
        PathState { own: Some(own), ..fresh(None) },
    ];
    let mut add = |bytes: Vec<u8>| seeds.add("path_state", [bytes, sizes.map(|size| size as u8).to_vec()].concat());
    for state in states {
        add(state.encode());
        add(PhaseState { steps: 3, levels: levels(), state }.encode());
    }
    let folder = tempfile::tempdir()?;
    let kept = DenseCheckpoint { file: folder.path().join("dense"), of: BlobHash([0; 32]) };
    kept.write(9, &Dense { levels: levels(), inner: fresh(None).inner }).map_err(std::io::Error::other)?;
    add(unsealed(&kept.file)?);
    Ok(())
}

/// A file without the hash of all before it, which its target makes.
fn unsealed(file: &std::path::Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = std::fs::read(file)?;
    bytes.truncate(bytes.len() - 32);
    Ok(bytes)
}

fn disk(seeds: &mut Seeds) -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("journal");
    let (mut journal, _) = Journal::open(&file).map_err(std::io::Error::other)?;
    seeds.add("store", std::fs::read(&file)?);
    for records in [&[&b"one"[..], b"", b"three"][..], &[b"four"]] {
        journal.append_all(records).map_err(std::io::Error::other)?;
    }
    seeds.add("store", std::fs::read(&file)?);
    let module = ModuleId { level: 0, expert: 1 };
    let modules = vec![ModuleCheckpoint { module, version: Version(3), state: BLOB }; 2];
    seeds.add("store", Checkpoint { phase: Phase(2), trainer: BLOB, modules, shard: BLOB }.encode());
    let kept = ArmCheckpoint { file: folder.path().join("arm"), of: BlobHash([0; 32]) };
    let best = vec![Best { phases: 1, loss: 2.5, levels: vec![vec![0.5, -1.0], vec![2.0]] }];
    kept.write(&ArmState { phases: 1, best, ..ArmState::default() }).map_err(std::io::Error::other)?;
    seeds.add("store", unsealed(&kept.file)?);
    Ok(())
}

fn handed_on(seeds: &mut Seeds) {
    for token in tokens() {
        seeds.add("user_input", to_text(&token).expect("a short token"));
        if let Grant::OneTime(one) = token.grant {
            seeds.add("user_input", serde_json::to_vec(&Order::TakeBack(one)).expect("an order is JSON"));
        }
    }
    let peer = PeerKey([2; 32]);
    seeds.add("user_input", serde_json::to_vec(&Order::SendAway(peer)).expect("an order is JSON"));
    let ban = Ban { peer, until_s: 9, times: 1, reason: "it flooded".to_owned() };
    seeds.add("user_input", serde_json::to_vec(&[ban]).expect("a ban is JSON"));
    seeds.add("user_input", r#"{"Ok":"done"}"#);
    seeds.add("user_input", "layer=2,head=0:off");
}

fn network(seeds: &mut Seeds) {
    let identity = Identity::generate();
    let (key, signature) = (identity.key(), identity.sign(b"what is signed"));
    seeds.add("network", [&key.0[..], &signature].concat());
    seeds.add("network", key.to_string());
    seeds.add("network", [&5u32.to_le_bytes()[..], b"hello"].concat());
    let peer = "12D3KooWKRyzVWW6ChFjQjK4miCty85Niy48tpPV95XdKu1BcvMA";
    for address in [
        "/ip4/192.0.2.1/udp/4001/quic-v1".to_owned(),
        format!("/ip6/2001:db8::1/tcp/4001/p2p/{peer}"),
        format!("/dns4/example.org/tcp/4001/p2p/{peer}/p2p-circuit/p2p/{peer}"),
    ] {
        let parsed: Multiaddr = address.parse().expect("an address");
        seeds.add("network", parsed.to_vec());
        seeds.add("network", address);
    }
}

pub fn add(seeds: &mut Seeds) -> std::io::Result<()> {
    manifests(seeds);
    path_states(seeds)?;
    status_reports(seeds)?;
    disk(seeds)?;
    handed_on(seeds);
    network(seeds);
    for path in [all_in("configs/experiments", "toml")?, all_in("configs/experiments/sizes", "toml")?].concat() {
        seeds.add("experiment_file", std::fs::read(path)?);
    }
    Ok(())
}
