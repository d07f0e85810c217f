//! Tests of replication.

use crate::protocol::limits::{
    HEARTBEAT_MS, MAX_REPLICAS, MAX_REPLICAS_FOR_ONE, MAX_WANTED, MEMBER_LEASE_MS, REPLICA_ANSWER_MS,
    REPLICA_RELEASE_MS, REPLICA_TIMEOUT_MS, STATES_KEPT, VERSIONS_KEPT,
};
use crate::protocol::node::tests::*;
use crate::protocol::wire::message::Wanted;
use crate::protocol::{Request, RequestId};

const OWN: ModuleId = ModuleId { level: 0, expert: 0 };
const COMMON: ModuleId = ModuleId { level: 1, expert: 0 };

/// A plan in which each path has a module of its own, and all share one.
fn wide(paths: u32) -> RunPlan {
    let grid = Grid::new(vec![Sharing::Experts(paths), Sharing::Shared]).unwrap();
    let genesis = grid.modules().into_iter().map(|module| (module, state(0))).collect();
    RunPlan {
        weights: vec![1; paths as usize],
        genesis,
        offer_bytes: vec![1_000; 2],
        average_bytes: vec![1_000; 2],
        norm_cap: 2.0,
        audit_share: 0.0,
        centred_clipping: false,
        deterministic: false,
        slots: grid.into(),
        ..plan()
    }
}

fn own(expert: u32) -> ModuleId {
    ModuleId { level: 0, expert }
}

fn at_genesis(module: ModuleId) -> Record {
    Record::Genesis { module, state: state(0) }
}

/// A node that holds path 0 and is the only one that has `OWN`.
fn holder() -> Node {
    holder_of(16)
}

fn holder_of(paths: u32) -> Node {
    let lease = Record::Lease { path: PathId(0), held: true, standby: false };
    let mut node = Node::restore(ME, wide(paths), vec![at_genesis(OWN), at_genesis(COMMON), lease]);
    node.handle(Millis(0), Event::Join(vec![]));
    node
}

/// A heartbeat on a module, of a peer with so many replicas. `OTHER` holds all paths but the first; other peers are
/// standbys.
fn on(module: ModuleId, peer: PeerKey, sequence: u64, replicas: u32) -> Event {
    let leases = match peer == OTHER {
        true => (1..16).map(|path| lease(path, 0, Stage::Waiting)).collect(),
        false => vec![lease(0, 0, Stage::Standby)],
    };
    let heartbeat = Heartbeat { leases, replicas, ..heartbeat(sequence, Some(genesis()), Some((1, OTHER))) };
    Event::Heard { module, author: peer, message: Message::Heartbeat(heartbeat).into() }
}

fn wanted(actions: &[Action]) -> Vec<Wanted> {
    let said = |action: &Action| match action {
        Action::Publish { message: Message::Heartbeat(heartbeat), .. } => Some(heartbeat.wanted.clone()),
        _ => None,
    };
    actions.iter().filter_map(said).next_back().unwrap_or_default()
}

/// Lets these peers send heartbeats on the common module for a while. Returns the replicas that the node's last
/// heartbeat wants.
fn after(node: &mut Node, from_ms: u64, to_ms: u64, others: &[(PeerKey, u32)]) -> Vec<Wanted> {
    let mut last = Vec::new();
    for now in (from_ms..to_ms).step_by(HEARTBEAT_MS as usize) {
        for (peer, replicas) in others {
            node.handle(Millis(now), on(COMMON, *peer, now + 1, *replicas));
        }
        last = wanted(&node.handle(Millis(now), Event::Tick));
    }
    last
}

fn asks(peer: PeerKey) -> Vec<Wanted> {
    vec![Wanted { module: OWN, helper: peer }]
}

#[test]
fn the_only_holder_of_a_module_asks_one_peer_for_a_replica_and_the_status_shows_that_there_is_none() {
    let mut node = holder();
    assert_eq!(after(&mut node, 0, REPLICA_TIMEOUT_MS, &[(OTHER, 0)]), []);
    assert!(node.status().modules[0].no_replica && !node.status().modules[1].no_replica);
    let now = REPLICA_TIMEOUT_MS;
    assert_eq!(after(&mut node, now, now + 3_000, &[(OTHER, 0)]), asks(OTHER));
    node.handle(Millis(now + 3_000), on(OWN, OTHER, now + 3_001, 1));
    assert!(!node.status().modules[0].no_replica);
    assert_eq!(after(&mut node, now + 3_000, now + 5_000, &[(OTHER, 1)]), []);
}

#[test]
fn the_peer_with_the_fewest_replicas_is_asked_and_if_it_does_not_join_the_next() {
    let mut node = holder();
    let others = [(OTHER, 3), (THIRD, 1)];
    let now = REPLICA_TIMEOUT_MS + 3_000;
    assert_eq!(after(&mut node, 0, now, &others), asks(THIRD));
    assert_eq!(after(&mut node, now, now + 3_000, &others), asks(THIRD));
    assert_eq!(after(&mut node, now + 3_000, now + REPLICA_ANSWER_MS + 3_000, &others), asks(OTHER));
    let full = MAX_REPLICAS as u32;
    assert_eq!(after(&mut holder(), 0, now, &[(OTHER, full), (THIRD, full)]), []);
}

#[test]
fn a_helper_that_dies_before_it_joins_is_replaced() {
    let mut node = holder();
    let now = REPLICA_TIMEOUT_MS + 3_000;
    assert_eq!(after(&mut node, 0, now, &[(OTHER, 3), (THIRD, 1)]), asks(THIRD));
    assert_eq!(after(&mut node, now, now + MEMBER_LEASE_MS + 2_000, &[(OTHER, 3)]), asks(OTHER));
}

/// `peer` announces on a module that it has path 0 in this stage.
fn holds(module: ModuleId, peer: PeerKey, sequence: u64, stage: Option<Stage>) -> Event {
    let leases = stage.into_iter().map(|stage| lease(0, 0, stage)).collect();
    let heartbeat = Heartbeat { leases, ..heartbeat(sequence, Some(genesis()), Some((1, OTHER))) };
    Event::Heard { module, author: peer, message: Message::Heartbeat(heartbeat).into() }
}

#[test]
fn a_peer_that_is_leaving_is_no_lasting_holder() {
    let stays = |stage| {
        let mut node = holder();
        node.handle(Millis(100), holds(OWN, OTHER, 1, Some(Stage::Standby)));
        node.handle(Millis(100), holds(OWN, THIRD, 1, Some(stage)));
        node.stays_as_replica(OWN)
    };
    assert!(!stays(Stage::Standby) && stays(Stage::Leaving));
}

#[test]
fn a_heartbeat_delayed_behind_a_newer_one_on_another_topic_takes_no_path_away() {
    let yields = |peer, sequence| {
        let mut node = holder();
        node.handle(Millis(100), holds(COMMON, peer, 5, None));
        let actions = node.handle(Millis(200), holds(OWN, peer, sequence, Some(Stage::Training)));
        actions.contains(&Action::Report(Report::PathYielded(PathId(0))))
    };
    let first =
        (4..=255).map(|byte| PeerKey([byte; 32])).find(|peer| yields(*peer, 6)).expect("a peer that outranks this one");
    assert!(!yields(first, 3));
}

fn asked_for(modules: &[ModuleId], helper: PeerKey) -> Event {
    let wanted = modules.iter().map(|module| Wanted { module: *module, helper }).collect();
    let heartbeat = Heartbeat { wanted, ..heartbeat(1, Some(genesis()), Some((1, OTHER))) };
    Event::Heard { module: COMMON, author: OTHER, message: Message::Heartbeat(heartbeat).into() }
}

#[test]
fn a_helper_joins_the_module_fetches_it_and_does_so_again_after_a_restart() {
    let mut node = holder();
    let actions = node.handle(Millis(100), asked_for(&[own(7)], ME));
    assert!(actions.contains(&Action::Persist(Record::Replica(own(7)))), "{actions:?}");
    assert!(actions.contains(&Action::Subscribe(own(7))));
    let heard = node.handle(Millis(200), on(own(7), OTHER, 1, 0));
    let ask = Request::CatchUp { module: own(7), from: None };
    let tick = node.handle(Millis(250), Event::Tick);
    let asked = |action: &Action| matches!(action, Action::Ask { to: OTHER, request, .. } if *request == ask);
    assert!(heard.iter().chain(&tick).any(asked), "{tick:?}");
    let mut again = Node::restore(ME, wide(16), node.records());
    assert!(again.handle(Millis(0), Event::Join(vec![])).contains(&Action::Subscribe(own(7))));
    assert_eq!(again.records(), [vec![Record::Started(2)], node.records()[1..].to_vec()].concat());
}

#[test]
fn requests_to_other_helpers_and_for_unknown_modules_are_ignored() {
    let mut node = holder();
    node.handle(Millis(100), asked_for(&[own(7)], THIRD));
    node.handle(Millis(100), asked_for(&[own(16), ModuleId { level: 9, expert: 0 }], ME));
    assert_eq!(node.status().modules.len(), 2);
}

#[test]
fn the_number_of_replicas_and_the_length_of_a_request_are_bounded() {
    let mut node = holder_of(40);
    let mut ask = |author: PeerKey, expert: u32| {
        let wanted = vec![Wanted { module: own(expert), helper: ME }];
        let heartbeat = Heartbeat { wanted, ..heartbeat(u64::from(expert), Some(genesis()), None) };
        node.handle(
            Millis(100),
            Event::Heard { module: COMMON, author, message: Message::Heartbeat(heartbeat).into() },
        );
        node.status().modules.len()
    };
    ask(THIRD, 40);
    let of_one = (1..40).map(|expert| ask(OTHER, expert)).last();
    assert_eq!(of_one, Some(2 + MAX_REPLICAS_FOR_ONE));
    let of_many = (1..40).map(|expert| ask(PeerKey([expert as u8 + 10; 32]), expert)).last();
    assert_eq!(of_many, Some(2 + MAX_REPLICAS));
    let mut node = holder_of(40);
    let many: Vec<ModuleId> = (1..=MAX_WANTED as u32 + 1).map(own).collect();
    node.handle(Millis(100), asked_for(&many, ME));
    assert_eq!(node.status().modules.len(), 2);
}

#[test]
fn a_machine_replicates_no_more_than_its_disk_quota_allows() {
    let one = STATES_KEPT as u64 * state(0).bytes + VERSIONS_KEPT * 1_000;
    for (room_bytes, replicas) in [(0, 0), (one - 1, 0), (2 * one, 2), (3 * one - 1, 2)] {
        let mut node = holder().replicating_within(room_bytes);
        node.handle(Millis(100), asked_for(&[own(7), own(8), own(9)], ME));
        assert_eq!(node.status().modules.len(), 2 + replicas, "{room_bytes}");
    }
}

/// A node with a replica of module 7. The holder of that module's path and these peers send heartbeats for so many
/// seconds.
fn replica_beside(others: &[PeerKey], seconds: u64) -> Node {
    let mut node = holder();
    node.handle(Millis(0), asked_for(&[own(7)], ME));
    let response = Some(crate::protocol::Response::Snapshot(vec![]));
    let mut request = None;
    for second in 1..=seconds {
        let mut actions = node.handle(Millis(second * 1_000), on(own(7), OTHER, second + 1, 0));
        for peer in others {
            actions.extend(node.handle(Millis(second * 1_000), on(own(7), *peer, second + 1, 0)));
        }
        actions.extend(node.handle(Millis(second * 1_000), Event::Tick));
        let asked = actions.iter().find_map(|action| match action {
            Action::Ask { id, request: Request::CatchUp { module, .. }, .. } if *module == own(7) => Some(*id),
            _ => None,
        });
        if let (None, Some(id)) = (request, asked) {
            request = Some::<RequestId>(id);
            node.handle(Millis(second * 1_000), Event::Answered { id, response: response.clone() });
            installed(&mut node, Millis(second * 1_000), state(0));
            assert_eq!(node.states().iter().filter(|(module, ..)| *module == own(7)).count(), 1);
        }
    }
    node
}

#[test]
fn a_replica_stays_while_only_one_other_peer_has_the_module() {
    let node = replica_beside(&[], REPLICA_RELEASE_MS / 1_000 + 10);
    assert_eq!(node.status().modules.iter().filter(|module| module.replica).count(), 1);
}

#[test]
fn a_replica_is_released_once_two_other_peers_have_had_the_module_for_a_while() {
    let higher = (4..=255).map(|byte| PeerKey([byte; 32])).find(|peer| ranks(*peer) > ranks(ME)).unwrap();
    let lower = (4..=255).map(|byte| PeerKey([byte; 32])).find(|peer| ranks(*peer) < ranks(ME)).unwrap();
    let seconds = REPLICA_RELEASE_MS / 1_000;
    let modules = |node: &Node| node.status().modules.len();
    assert_eq!(modules(&replica_beside(&[higher], seconds - 5)), 3);
    let node = replica_beside(&[higher], seconds + 10);
    assert_eq!(modules(&node), 2);
    assert!(!node.records().contains(&Record::Replica(own(7))));
    // Of two replicas, one stays. They do not both count each other as the second holder.
    assert_eq!(modules(&replica_beside(&[lower], seconds + 10)), 3);
}

fn ranks(peer: PeerKey) -> [u8; 32] {
    crate::protocol::node::module::election::rank(own(7), peer)
}
