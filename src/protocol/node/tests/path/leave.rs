//! Tests of leaving in order.

use crate::protocol::limits::{ELECTION_STAGGER_MS, LEAVE_MS, MEMBER_LEASE_MS, PATH_LEASE_MS};
use crate::protocol::node::tests::*;
use crate::protocol::wire::message::PathHandOff;
use crate::protocol::{ReplyToken, Request, Response};
use crate::sampling::WorkerSlots;

fn heartbeats(actions: &[Action]) -> Vec<&Heartbeat> {
    let heartbeat = |action| match action {
        &Action::Publish { message: Message::Heartbeat(ref heartbeat), .. } => Some(heartbeat),
        _ => None,
    };
    actions.iter().filter_map(heartbeat).collect()
}

/// The actions until the node has left, and when that is. The other member announces these leases meanwhile.
fn goes(node: &mut Node, leases: &[Lease]) -> (Vec<Action>, u64) {
    let mut actions = Vec::new();
    for now in (250..60_000).step_by(250) {
        let theirs = Heartbeat { leases: leases.to_vec(), ..heartbeat(now, Some(genesis()), Some((1, OTHER))) };
        actions.extend(node.handle(Millis(now), heard_heartbeat(OTHER, theirs)));
        actions.extend(node.handle(Millis(now), Event::Tick));
        if actions.contains(&Action::Gone) {
            return (actions, now);
        }
    }
    panic!("never gone: {actions:?}");
}

#[test]
fn a_peer_that_leaves_stops_its_trainer_and_announces_its_path() {
    let mut node = member_with_owner(&[]);
    let actions = node.handle(Millis(10), Event::Leave);
    assert!(actions.contains(&Action::Pause { path: PathId(0) }) && !actions.contains(&Action::Gone), "{actions:?}");
    let said = heartbeats(&actions);
    assert!(
        said.iter().all(|heartbeat| !heartbeat.leaving && heartbeat.leases == [lease(0, 0, Stage::Leaving)])
            && !said.is_empty()
    );
}

#[test]
fn it_leaves_once_another_peer_has_its_path_with_the_checkpoint_and_trains_nothing_meanwhile() {
    let mut node = member_with_owner(&[]);
    node.handle(Millis(10), Event::Leave);
    let blob = BlobRef::of(b"middle");
    node.handle(Millis(20), Event::Paused { path: PathId(0), phase: Phase(0), middle: Some((7, blob)) });
    let joins =
        Heartbeat { leases: vec![lease(0, 0, Stage::Joining)], ..heartbeat(2, Some(genesis()), Some((1, OTHER))) };
    node.handle(Millis(30), heard_heartbeat(OTHER, joins));
    let asked = Event::Asked { from: OTHER, token: ReplyToken(1), request: Request::Path(PathId(0)) };
    let answered = node.handle(Millis(40), asked);
    let [Action::Reply { response: Response::Path(Some(PathHandOff { later: false, checkpoint, .. })), .. }] =
        &answered[..]
    else {
        panic!("{answered:?}")
    };
    assert_eq!(checkpoint.as_ref().map(|middle| (middle.steps, middle.blob)), Some((7, blob)));
    let (actions, at) = goes(&mut node, &[lease(0, 0, Stage::Training)]);
    assert!(at <= 500, "{at}");
    assert!(!actions.iter().any(|action| matches!(action, Action::Train { .. })));
    assert!(actions.contains(&Action::Persist(Record::Lease { path: PathId(0), held: false, standby: false })));
    assert!(heartbeats(&actions).last().is_some_and(|heartbeat| heartbeat.leaving));
    assert_eq!(node.next_deadline(), None);
}

#[test]
fn the_only_holder_of_a_module_asks_for_a_replica_at_once_and_leaves_when_another_peer_has_it() {
    let mut node = member_with_owner(&[]);
    let others = |now: u64, head| Heartbeat {
        leases: vec![lease(0, 0, Stage::Training)],
        ..heartbeat(now, head, Some((1, OTHER)))
    };
    node.handle(Millis(5), heard_heartbeat(OTHER, others(5, None)));
    node.handle(Millis(10), Event::Leave);
    let mut went_at = None;
    for now in (250..60_000).step_by(250) {
        let head = (now >= 30_000).then(genesis);
        let mut actions = node.handle(Millis(now), heard_heartbeat(OTHER, others(now, head)));
        actions.extend(node.handle(Millis(now), Event::Tick));
        went_at = went_at.or(actions.contains(&Action::Gone).then_some(now));
    }
    assert_eq!(went_at, Some(30_000));
}

#[test]
fn if_no_peer_takes_its_path_it_leaves_after_a_time_out_and_keeps_the_path() {
    let mut node = member_with_owner(&[]);
    node.handle(Millis(0), Event::Leave);
    let (actions, at) = goes(&mut node, &[lease(1, 0, Stage::Training)]);
    assert!((LEAVE_MS..LEAVE_MS + 500).contains(&at), "{at}");
    assert!(!actions.iter().any(|action| matches!(action, Action::Persist(Record::Lease { .. }))));
}

#[test]
fn its_contribution_is_offered_until_it_is_counted_while_it_leaves() {
    let mut node = member_with_owner(&[]);
    node.handle(Millis(0), Event::Trained(trained(0, genesis())));
    node.handle(Millis(0), Event::Leave);
    let taken = [lease(0, 0, Stage::Waiting)];
    let theirs = Heartbeat { leases: taken.to_vec(), ..heartbeat(3, Some(genesis()), Some((1, OTHER))) };
    let mut actions = node.handle(Millis(10), heard_heartbeat(OTHER, theirs));
    for now in (250..4_000).step_by(250) {
        actions.extend(node.handle(Millis(now), Event::Tick));
    }
    assert!(!actions.contains(&Action::Gone));
    assert!(actions.iter().any(|action| matches!(action, Action::Publish { message: Message::Offer(_), .. })));
    node.handle(Millis(4_000), heard(OTHER, Message::Update(update(genesis(), 1, OTHER))));
    node.handle(Millis(4_000), Event::Fetched { blob: average(1).hash, found: true });
    node.handle(Millis(4_000), Event::Applied { module: MODULE, version: Version(1), state: Some(state(1)) });
    assert!(node.handle(Millis(4_250), Event::Tick).contains(&Action::Gone));
}

#[test]
fn an_owner_that_leaves_names_its_successor_at_once_and_stays_a_member() {
    let mut node = owner();
    let actions = node.handle(Millis(2_010), Event::Leave);
    assert!(heartbeats(&actions).last().is_some_and(|heartbeat| heartbeat.leaving), "{actions:?}");
    let next = Some((Term(2), OTHER));
    assert!(heartbeats(&actions).last().is_some_and(|heartbeat| heartbeat.owner == next), "and names its successor");
    let still = heard_heartbeat(OTHER, heartbeat(2, Some(genesis()), Some((1, ME))));
    let actions = [node.handle(Millis(2_020), still), node.handle(Millis(2_500), Event::Tick)].concat();
    assert!(
        heartbeats(&actions).last().is_some_and(|heartbeat| !heartbeat.leaving && heartbeat.owner == next),
        "{actions:?}"
    );
}

#[test]
fn a_standby_takes_the_path_of_a_leaving_peer_at_once_and_requests_its_trainer() {
    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: OTHER },
        Record::Lease { path: PathId(0), held: true, standby: true },
    ];
    let mut node = Node::restore(ME, plan(), records);
    node.handle(Millis(0), Event::Join(vec![]));
    let (mut taken_ms, leaves_ms) = (None, 1_000);
    for now in (250..MEMBER_LEASE_MS + PATH_LEASE_MS).step_by(250) {
        let stage = if now < leaves_ms { Stage::Training } else { Stage::Leaving };
        let theirs =
            Heartbeat { leases: vec![lease(0, 0, stage)], ..heartbeat(now, Some(genesis()), Some((1, OTHER))) };
        let mut actions = node.handle(Millis(now), heard_heartbeat(OTHER, theirs));
        let third = Heartbeat { leases: vec![lease(1, 0, Stage::Training)], ..heartbeat(now, Some(genesis()), None) };
        actions.extend(node.handle(Millis(now), heard_heartbeat(THIRD, third)));
        actions.extend(node.handle(Millis(now), Event::Tick));
        let asks = |action: &Action| matches!(action, Action::Ask { to: OTHER, request: Request::Path(PathId(0)), .. });
        if actions.iter().any(asks) {
            taken_ms.get_or_insert(now);
        }
    }
    assert_eq!(taken_ms, Some(leaves_ms));
}

#[test]
fn peers_that_all_leave_do_not_wait_for_each_other() {
    let mut node = member_with_owner(&[]);
    node.handle(Millis(0), Event::Leave);
    let (_, at) = goes(&mut node, &[lease(1, 0, Stage::Leaving)]);
    assert!(at <= 500, "{at}");
}

/// A grid of 2×2 paths, of which `OTHER` trains three and leaves.
#[test]
fn a_peer_that_trains_one_path_takes_all_paths_of_a_leaving_one_at_the_same_time() {
    let slots: WorkerSlots = Grid::new(vec![Sharing::Experts(2), Sharing::Experts(2)]).unwrap().into();
    let genesis_of = slots.grid().modules().into_iter().map(|module| (module, state(0)));
    let genesis_of: BTreeMap<ModuleId, BlobRef> = genesis_of.collect();
    let wide = RunPlan {
        slots,
        weights: vec![100; 4],
        genesis: genesis_of.clone(),
        offer_bytes: vec![1_000; 2],
        average_bytes: vec![1_000; 2],
        norm_cap: 2.0,
        audit_share: 0.0,
        centred_clipping: false,
        deterministic: false,
        ..plan()
    };
    let mut records: Vec<Record> =
        genesis_of.iter().map(|(module, state)| Record::Genesis { module: *module, state: *state }).collect();
    records.push(Record::Lease { path: PathId(0), held: true, standby: false });
    let mut node = Node::restore(ME, wide, records);
    node.handle(Millis(0), Event::Join(vec![]));
    let (mut taken_ms, leaves_ms) = (BTreeMap::new(), 2_000);
    for now in (250..2 * ELECTION_STAGGER_MS + leaves_ms).step_by(250) {
        let stage = if now < leaves_ms { Stage::Training } else { Stage::Leaving };
        let leases: Vec<Lease> = (1..4).map(|path| lease(path, 0, stage)).collect();
        for module in genesis_of.keys() {
            let heartbeat = Heartbeat { leases: leases.clone(), ..heartbeat(now, Some(genesis()), None) };
            let heard = Event::Heard { module: *module, author: OTHER, message: Message::Heartbeat(heartbeat).into() };
            node.handle(Millis(now), heard);
        }
        for action in node.handle(Millis(now), Event::Tick) {
            if let Action::Report(Report::PathTaken(path)) = action {
                taken_ms.insert(path, now);
            }
        }
    }
    let at_once: BTreeMap<PathId, u64> = (1..4).map(|path| (PathId(path), leaves_ms + ELECTION_STAGGER_MS)).collect();
    assert_eq!(taken_ms, at_once);
}
