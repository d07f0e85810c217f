//! Tests of the placement of paths.

use crate::protocol::limits::{ELECTION_STAGGER_MS, MEMBER_LEASE_MS, PATH_LEASE_MOST_MS, PATH_LEASE_MS};
use crate::protocol::node::module::election::path_rank;
use crate::protocol::node::tests::*;
use crate::protocol::status::waiting::Waiting;
use crate::protocol::wire::message::DirectoryEntry;
use crate::protocol::{Request, RequestId, Response};
use crate::sampling::WorkerSlots;

fn entry(peer: PeerKey, leases: Vec<Lease>) -> DirectoryEntry {
    DirectoryEntry { peer, addresses: vec!["somewhere".to_owned()], leases }
}

fn first_start() -> Start {
    Start { incarnation: 1, ..Start::default() }
}

fn ask(id: u64, to: PeerKey) -> Action {
    Action::Ask { id: RequestId(id), to, request: Request::Directory { start: Some(first_start()) } }
}

fn directory(id: u64, entries: Vec<DirectoryEntry>) -> Event {
    Event::Answered { id: RequestId(id), response: Some(Response::Directory(entries)) }
}

fn takes(path: u32, stage: Stage, id: u64, donor: PeerKey) -> Vec<Action> {
    let heartbeat = Heartbeat { addresses: vec![], leases: vec![lease(path, 0, stage)], ..heartbeat(1, None, None) };
    vec![
        Action::Persist(Record::Lease { path: PathId(path), held: true, standby: stage == Stage::Standby }),
        Action::Report(Report::PathTaken(PathId(path))),
        Action::Subscribe(MODULE),
        publish(Message::Heartbeat(heartbeat)),
        Action::Ask { id: RequestId(id), to: donor, request: Request::CatchUp { module: MODULE, from: None } },
    ]
}

/// The actions of a newcomer to which `OTHER` has named these leases.
fn newcomer(leases: Vec<Lease>) -> Vec<Action> {
    let mut node = Node::restore(ME, plan(), vec![]);
    assert_eq!(
        node.handle(Millis(0), Event::Join(vec![contact(OTHER)])),
        vec![Action::Persist(Record::Started(1)), learn(OTHER), ask(1, OTHER)]
    );
    node.handle(Millis(10), directory(1, vec![entry(OTHER, leases)]))
}

#[test]
fn a_newcomer_takes_a_path_from_a_peer_that_has_several() {
    let both = vec![lease(0, 3, Stage::Training), lease(1, 3, Stage::Waiting)];
    let expected = [vec![learn(OTHER)], takes(1, Stage::Joining, 2, OTHER)].concat();
    assert_eq!(newcomer(both), expected, "the state of its trainer is requested once the module is here");
}

#[test]
fn the_status_of_a_newcomer_shows_its_requests_and_that_no_peer_has_responded() {
    let mut node = Node::restore(ME, plan(), vec![]);
    node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
    assert_eq!(node.status().waits_for, Some(Waiting::Directory { unanswered: vec![OTHER], asked: 1 }));
    node.handle(Millis(10), Event::Answered { id: RequestId(1), response: None });
    assert_eq!(node.status().waits_for, Some(Waiting::Nobody { asked: 1 }));
    node.handle(Millis(250), Event::Tick);
    node.handle(Millis(260), directory(2, vec![entry(OTHER, vec![lease(0, 3, Stage::Training)])]));
    let fetching = Some(Waiting::Modules { modules: vec!["0.0".to_owned()], members: 0 });
    let status = node.status();
    assert_eq!((&status.waits_for, &status.paths[0].waits_for), (&fetching, &fetching));
}

#[test]
fn a_newcomer_prefers_a_path_without_a_holder() {
    let one = vec![lease(0, 3, Stage::Training), lease(1, 3, Stage::Standby)];
    assert_eq!(newcomer(one), [vec![learn(OTHER)], takes(1, Stage::Joining, 2, OTHER)].concat());
}

#[test]
fn newcomers_that_know_of_no_holder_spread_over_the_paths() {
    let chosen = |byte: u8| {
        let mut node = Node::restore(PeerKey([byte; 32]), plan(), vec![]);
        node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
        let actions = node.handle(Millis(10), directory(1, vec![entry(OTHER, vec![])]));
        let taken = actions.iter().find_map(|action| match action {
            Action::Report(Report::PathTaken(path)) => Some(*path),
            _ => None,
        });
        taken.unwrap()
    };
    let first = (10..60).filter(|byte| chosen(*byte) == PathId(0)).count();
    assert!((10..40).contains(&first), "{first} of 50 have taken the first of two paths");
}

#[test]
fn paths_outside_the_grid_attract_no_newcomer() {
    let made_up = vec![lease(u32::MAX, 3, Stage::Training), lease(7, 3, Stage::Waiting), lease(0, 3, Stage::Waiting)];
    assert_eq!(newcomer(made_up), [vec![learn(OTHER)], takes(1, Stage::Joining, 2, OTHER)].concat());
    let endless = vec![lease(0, 3, Stage::Waiting); 5_000];
    assert_eq!(newcomer(endless), vec![]);
}

#[test]
fn a_newcomer_becomes_a_standby_where_every_path_has_its_own_peer() {
    let mut node = Node::restore(ME, plan(), vec![]);
    node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
    let entries =
        vec![entry(OTHER, vec![lease(0, 3, Stage::Training)]), entry(THIRD, vec![lease(1, 3, Stage::Standby)])];
    let told = node.handle(Millis(10), directory(1, entries));
    assert_eq!(told, vec![learn(OTHER), learn(THIRD), ask(2, THIRD)]);
    let third = vec![lease(1, 3, Stage::Training)];
    let actions = node.handle(Millis(20), directory(2, vec![entry(THIRD, third)]));
    let took = actions.iter().find_map(|action| match action {
        Action::Persist(Record::Lease { held: true, standby, .. }) => Some(*standby),
        _ => None,
    });
    assert_eq!(took, Some(true));
}

/// A 2×4 grid: paths 0 to 3 go through one module of the first level, 4 to 7 through the other.
fn wide() -> RunPlan {
    let slots: WorkerSlots = Grid::new(vec![Sharing::Experts(2), Sharing::Experts(4)]).unwrap().into();
    let genesis = slots.grid().modules().into_iter().map(|module| (module, state(0))).collect();
    RunPlan {
        slots,
        weights: vec![100; 8],
        genesis,
        offer_bytes: vec![1_000; 2],
        average_bytes: vec![1_000; 2],
        norm_cap: 2.0,
        audit_share: 0.0,
        centred_clipping: false,
        deterministic: false,
        ..plan()
    }
}

#[test]
fn standbys_spread_over_the_modules() {
    let node = Node::new(ME, wide());
    let mut standbys = vec![PathId(1)];
    for _ in 1..4 {
        standbys.push(node.path_to_stand_by(&standbys, Phase(0)));
    }
    let level_0: Vec<u32> = standbys.iter().map(|path| path.0 / 4).collect();
    assert_eq!(level_0.iter().filter(|expert| **expert == 0).count(), 2, "{standbys:?}");
    let mut level_1: Vec<u32> = standbys.iter().map(|path| path.0 % 4).collect();
    level_1.sort_unstable();
    assert_eq!(level_1, [0, 1, 2, 3], "{standbys:?}");
}

#[test]
fn of_two_peers_that_join_one_path_the_one_that_trains_another_yields() {
    assert!(path_rank(PathId(1), ME) > path_rank(PathId(1), THIRD), "otherwise the test shows nothing");
    for busy in [false, true] {
        let mut node = member_with_owner(&[]);
        node.take_path(PathId(1), Stage::Joining);
        if !busy {
            node.yield_path(PathId(0), false);
        }
        node.settle_leases(THIRD, &[lease(1, 0, Stage::Joining)]);
        assert_eq!(node.paths().contains(&PathId(1)), !busy);
    }
}

#[test]
fn a_newcomer_asks_every_peer_it_ever_heard_of_when_it_searches_again() {
    let mut node = Node::restore(ME, plan(), vec![]);
    node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
    node.handle(Millis(10), directory(1, vec![entry(THIRD, vec![lease(0, 0, Stage::Training)])]));
    node.handle(Millis(20), Event::Answered { id: RequestId(2), response: None });
    // It holds a path now, and yields it to a peer that holds only that path.
    let path = node.paths()[0];
    let theirs = Heartbeat { leases: vec![lease(path.0, 0, Stage::Training)], ..heartbeat(1, Some(genesis()), None) };
    let actions = node.handle(Millis(30), heard_heartbeat(THIRD, theirs));
    let asked: Vec<PeerKey> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Ask { to, request: Request::Directory { .. }, .. } => Some(*to),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [THIRD, OTHER]);
}

/// When a node takes a path without a holder, in a module whose recent phases took this long.
fn taken_up_ms(phase_ms: Option<u64>) -> u64 {
    let mut node = member_with_owner(&[]);
    let modules = node.modules.values_mut();
    modules.for_each(|state| phase_ms.into_iter().for_each(|phase_ms| state.history.note_phase(phase_ms)));
    let taken = Action::Report(Report::PathTaken(PathId(1)));
    let mut ticks = (0..400_000).step_by(250);
    ticks.find(|now| node.handle(Millis(*now), Event::Tick).contains(&taken)).unwrap()
}

#[test]
fn a_path_whose_holder_is_dead_is_taken_after_its_lease_and_a_delay_for_standbys() {
    let orphaned_ms = MEMBER_LEASE_MS + PATH_LEASE_MS + ELECTION_STAGGER_MS;
    for phase_ms in [None, Some(5_000), Some(60_000)] {
        let taken_ms = taken_up_ms(phase_ms);
        assert!((orphaned_ms..orphaned_ms + 1_000).contains(&taken_ms), "{phase_ms:?}: {taken_ms}");
    }
}

#[test]
fn where_phases_are_long_a_path_waits_longer_for_its_holder_but_not_forever() {
    for (phase_ms, lease_ms) in [(200_000, 50_000), (3_600_000, PATH_LEASE_MOST_MS)] {
        let taken_ms = taken_up_ms(Some(phase_ms)) - MEMBER_LEASE_MS - ELECTION_STAGGER_MS;
        assert!((lease_ms..lease_ms + 1_000).contains(&taken_ms), "{phase_ms}: {taken_ms}");
    }
}

#[test]
fn if_the_first_in_rank_does_not_take_a_path_the_next_does() {
    let mut node = member_with_owner(&[]);
    let mut taken_ms = None;
    for now in (0..60_000).step_by(250) {
        let standby = Heartbeat { leases: vec![lease(0, 0, Stage::Standby)], ..heartbeat(now, Some(genesis()), None) };
        let mut actions = node.handle(Millis(now), heard_heartbeat(THIRD, standby));
        actions.extend(node.handle(Millis(now), Event::Tick));
        if actions.contains(&Action::Report(Report::PathTaken(PathId(1)))) {
            taken_ms.get_or_insert(now);
        }
    }
    let taken_ms = taken_ms.unwrap();
    let orphaned_ms = MEMBER_LEASE_MS + PATH_LEASE_MS + 2 * ELECTION_STAGGER_MS;
    assert!((orphaned_ms..orphaned_ms + 1_000).contains(&taken_ms), "{taken_ms}");
}

#[test]
fn a_standby_that_takes_a_path_is_no_longer_a_standby() {
    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Lease { path: PathId(0), held: true, standby: true },
    ];
    let mut node = Node::restore(ME, plan(), records.clone());
    let mut journal = records;
    let mut keep = |actions: Vec<Action>| {
        journal.extend(actions.into_iter().filter_map(|action| match action {
            Action::Persist(record) => Some(record),
            _ => None,
        }));
    };
    keep(node.handle(Millis(0), Event::Join(vec![])));
    assert_eq!(node.leases(), vec![lease(0, 0, Stage::Standby)], "it is still a standby after a restart");
    for now in (0..40_000).step_by(250) {
        keep(node.handle(Millis(now), Event::Tick));
    }
    assert_eq!(node.leases().iter().filter(|lease| lease.stage == Stage::Standby).count(), 0);
    let again = Node::restore(ME, plan(), journal);
    assert_eq!(again.paths(), node.paths());
}
