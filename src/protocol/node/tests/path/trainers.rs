//! Tests of paths with several trainers.

use crate::protocol::limits::{
    ELECTION_STAGGER_MS, FULL_WEIGHT, HEARTBEAT_MS, LEAVE_MS, MEMBER_LEASE_MS, PATH_LEASE_MS,
};
use crate::protocol::node::tests::*;
use crate::protocol::wire::message::{DirectoryEntry, PathHandOff};
use crate::protocol::{ReplyToken, Request, RequestId, Response};

/// Two paths through one module, with up to three trainers each: slots 0, 2 and 4 are of path 0.
fn three_each() -> RunPlan {
    let slots = plan().slots.with_trainers(3).unwrap();
    RunPlan { slots, weights: vec![FULL_WEIGHT; 2], ..plan() }
}

/// The slot that a newcomer takes to which these leases are named, and whether as a standby.
fn taken_by_newcomer(leases: Vec<Lease>, plan: RunPlan) -> (u32, bool) {
    let mut node = Node::restore(ME, plan, vec![]);
    node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
    let peers = leases.into_iter().enumerate().map(|(index, lease)| {
        let peer = if index == 0 { OTHER } else { PeerKey([index as u8 + 50; 32]) };
        DirectoryEntry { peer, addresses: vec!["somewhere".to_owned()], leases: vec![lease] }
    });
    let entries: Vec<DirectoryEntry> = peers.collect();
    let asked = entries.len() as u64;
    let mut actions = Vec::new();
    for id in 1..=asked {
        let response = Some(Response::Directory(entries.clone()));
        actions.extend(node.handle(Millis(10), Event::Answered { id: RequestId(id), response }));
    }
    let taken = actions.iter().find_map(|action| match action {
        Action::Persist(Record::Lease { path, held: true, standby }) => Some((path.0, *standby)),
        _ => None,
    });
    taken.expect("it takes a slot")
}

fn training(slots: &[u32]) -> Vec<Lease> {
    slots.iter().map(|slot| lease(*slot, 0, Stage::Training)).collect()
}

#[test]
fn a_newcomer_becomes_one_more_trainer_of_the_path_with_the_fewest() {
    assert_eq!(taken_by_newcomer(training(&[0, 1, 2]), three_each()), (3, false));
    assert_eq!(taken_by_newcomer(training(&[0, 1, 3]), three_each()), (2, false));
    assert_eq!(
        taken_by_newcomer(training(&[0, 2, 4]), three_each()),
        (1, false),
        "a path without a trainer goes first"
    );
    assert!(taken_by_newcomer(training(&[0, 1, 2, 3, 4, 5]), three_each()).1, "each path has as many as it may have");
}

#[test]
fn a_path_with_a_larger_shard_has_more_trainers() {
    let plan = RunPlan { weights: vec![FULL_WEIGHT, FULL_WEIGHT / 4], ..three_each() };
    assert_eq!(taken_by_newcomer(training(&[0, 1]), plan.clone()), (2, false));
    assert_eq!(taken_by_newcomer(training(&[0, 1, 2]), plan), (4, false));
}

fn offered(slot: u32, steps: u32) -> Offer {
    Offer { steps, ..offer(slot, genesis()) }
}

/// What a node that owns the module lists, if these trainers offer.
fn listed(plan: RunPlan, offers: &[Offer]) -> Vec<Counted> {
    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: ME },
    ];
    let mut node = Node::restore(ME, plan, records);
    node.handle(Millis(0), Event::Join(vec![]));
    pass(&mut node, 0, 8_999);
    let mut actions = Vec::new();
    for (index, offer) in offers.iter().enumerate() {
        let author = PeerKey([index as u8 + 50; 32]);
        let leases = vec![lease(offer.path.0, 0, Stage::Waiting)];
        let heartbeat = Heartbeat { leases, ..heartbeat(1, Some(genesis()), Some((1, ME))) };
        actions.extend(node.handle(Millis(9_000), heard_heartbeat(author, heartbeat)));
    }
    for (index, offer) in offers.iter().enumerate() {
        let (author, blob) = (PeerKey([index as u8 + 50; 32]), offer.blob.hash);
        actions.extend(node.handle(Millis(9_000), heard(author, Message::Offer(offer.clone()))));
        actions.extend(node.handle(Millis(9_000), Event::Fetched { blob, found: true }));
        let target = Version(1);
        actions
            .extend(node.handle(Millis(9_000), Event::Accumulated { module: MODULE, target, blob, norm: Some(NORM) }));
    }
    actions.extend(pass(&mut node, 9_000, 11_000).into_iter().map(|(_, action)| action));
    let listed = actions.into_iter().find_map(|action| match action {
        Action::Outer(Outer::Combine { contributions, .. }) => Some(contributions),
        _ => None,
    });
    listed.expect("the collection closes").to_vec()
}

#[test]
fn the_trainers_of_a_path_share_its_weight_by_their_steps() {
    let plan = RunPlan { weights: vec![80, 60], ..three_each() };
    let counted = listed(plan.clone(), &[offered(0, 64), offered(1, 64), offered(2, 16)]);
    let weights: Vec<(u32, u32)> = counted.iter().map(|it| (it.path.0, it.weight)).collect();
    assert_eq!(weights, [(0, 64), (1, 60), (2, 16)]);
    let portion = plan.portion(MODULE, &counted);
    assert_eq!((portion.paths, portion.weight), (2, 140), "the P of √P counts paths");
}

#[test]
fn a_late_trainer_shares_what_its_path_weighs_for_that_version() {
    let plan = RunPlan { weights: vec![80, 60], ..three_each() };
    let mut chain = Chain::genesis(state(0));
    let mut first = update(genesis(), 1, OTHER);
    first.update.contributions = vec![Counted { uncapped: 80, weight: 80, ..counted(0, 0) }].into();
    chain.push(first);
    let late = (PathId(2), Version(0), 64);
    assert_eq!(plan.shared_weights(MODULE, &chain, &[late]), [20], "half for its lateness, and half of that");
    assert_eq!(plan.shared_weights(MODULE, &chain, &[(PathId(3), Version(0), 64)]), [30], "nobody was before it");
}

/// A node with a chain that trains the first slot and hears another peer that trains the second.
fn beside(own: u32, slot: u32) -> Node {
    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Lease { path: PathId(own), held: true, standby: false },
    ];
    let mut node = Node::restore(ME, three_each(), records);
    node.handle(Millis(0), Event::Join(vec![]));
    hear(&mut node, 0, slot);
    node
}

fn hear(node: &mut Node, now: u64, slot: u32) {
    let leases = vec![lease(slot, 0, Stage::Training)];
    node.handle(Millis(now), heard_heartbeat(OTHER, Heartbeat { leases, ..heartbeat(now + 1, Some(genesis()), None) }));
}

#[test]
fn where_a_path_has_no_trainer_a_peer_whose_path_has_another_moves_to_it() {
    let mut node = beside(2, 0);
    let mut moved_ms = None;
    for now in (250..60_000).step_by(250) {
        hear(&mut node, now, 0);
        node.handle(Millis(now), Event::Tick);
        if node.paths() == [PathId(1)] {
            moved_ms.get_or_insert(now);
        }
    }
    let lease_ms = MEMBER_LEASE_MS + PATH_LEASE_MS;
    let moved_ms = moved_ms.expect("it trains path 1, and no longer path 0");
    assert!(moved_ms <= lease_ms + 3 * ELECTION_STAGGER_MS, "{moved_ms}");
}

#[test]
fn the_first_trainer_of_a_path_stays_where_the_second_moves() {
    let mut node = beside(0, 2);
    for now in (250..30_000).step_by(250) {
        // The second one takes path 1 as soon as its lease is over.
        hear(&mut node, now, if now < MEMBER_LEASE_MS + PATH_LEASE_MS { 2 } else { 1 });
        node.handle(Millis(now), Event::Tick);
    }
    assert_eq!(node.paths(), [PathId(0)]);
}

#[test]
fn a_peer_that_trains_takes_no_further_slot_of_a_path_that_has_a_trainer() {
    let mut node = beside(0, 1);
    for now in (250..60_000).step_by(250) {
        hear(&mut node, now, 1);
        node.handle(Millis(now), Event::Tick);
    }
    assert_eq!(node.paths(), [PathId(0)]);
}

#[test]
fn a_peer_whose_path_has_another_trainer_contributes_what_it_has_trained_and_leaves() {
    let mut node = beside(2, 0);
    node.handle(Millis(250), Event::Tick);
    let actions = node.handle(Millis(300), Event::Leave);
    assert!(actions.contains(&Action::EndPhase { path: PathId(2) }) && !actions.contains(&Action::Gone), "{actions:?}");
    let finished = Finished { steps: 9, ..trained(2, genesis()) };
    let actions = node.handle(Millis(310), Event::Trained(finished));
    let offers =
        |action: &Action| matches!(action, Action::Publish { message: Message::Offer(Offer { steps: 9, .. }), .. });
    assert!(actions.iter().any(offers), "{actions:?}");
    let mut gone_ms = None;
    for now in (500..20_000).step_by(250) {
        hear(&mut node, now, 0);
        if node.handle(Millis(now), Event::Tick).contains(&Action::Gone) {
            gone_ms.get_or_insert(now);
        }
    }
    // Nobody counts what it offers here, so it goes when it has waited for that.
    let gone_ms = gone_ms.expect("it goes");
    assert!(gone_ms >= LEAVE_MS && node.paths().is_empty(), "{gone_ms}");
}

#[test]
fn two_trainers_that_leave_at_the_same_time_do_not_rely_on_each_other() {
    let leaves = |stage: Stage| {
        let mut node = beside(2, 0);
        node.handle(Millis(250), Event::Tick);
        node.handle(Millis(300), Event::Leave);
        node.handle(Millis(310), Event::Paused { path: PathId(2), phase: Phase(0), middle: None });
        let mut gone_ms = None;
        for now in (500..20_000).step_by(250) {
            let leases = vec![lease(0, 0, stage)];
            let theirs = Heartbeat { leases, ..heartbeat(now + 1, Some(genesis()), None) };
            node.handle(Millis(now), heard_heartbeat(OTHER, theirs));
            let stays = Heartbeat { leases: training(&[1]), ..heartbeat(now + 1, Some(genesis()), None) };
            node.handle(Millis(now), heard_heartbeat(THIRD, stays));
            if node.handle(Millis(now), Event::Tick).contains(&Action::Gone) {
                gone_ms.get_or_insert(now);
            }
        }
        gone_ms.expect("it goes")
    };
    assert!((HEARTBEAT_MS..LEAVE_MS).contains(&leaves(Stage::Training)), "the other one goes on");
    assert!(leaves(Stage::Leaving) >= LEAVE_MS, "the path waits for a peer that takes it");
}

#[test]
fn a_lease_of_a_slot_that_does_not_exist_is_taken_by_nobody() {
    let mut node = beside(2, 0);
    for now in (250..40_000).step_by(250) {
        hear(&mut node, now, 0);
        let leases = training(&[1, 4_000_000_001]);
        let theirs = Heartbeat { leases, ..heartbeat(now + 1, Some(genesis()), None) };
        node.handle(Millis(now), heard_heartbeat(THIRD, theirs));
        node.handle(Millis(now), Event::Tick);
    }
    assert_eq!(node.paths(), [PathId(1)], "it relieves the peer of the slot that there is");
}

#[test]
fn a_peer_whose_path_has_another_trainer_relieves_one_that_trains_several_in_turn() {
    let slots = Grid::with_paths(vec![Sharing::Shared], 3).unwrap().into();
    let slots = crate::sampling::WorkerSlots::with_trainers(slots, 2).unwrap();
    let plan = RunPlan { slots, weights: vec![FULL_WEIGHT; 3], ..plan() };
    for spared in [true, false] {
        let own = if spared { 3 } else { 0 };
        let records = vec![
            Record::Genesis { module: MODULE, state: state(0) },
            Record::Lease { path: PathId(own), held: true, standby: false },
        ];
        let mut node = Node::restore(ME, plan.clone(), records);
        node.handle(Millis(0), Event::Join(vec![]));
        for now in (250..40_000).step_by(250) {
            let others: &[(PeerKey, &[u32])] = &[(OTHER, &[1, 2]), (THIRD, &[0])];
            for (peer, leases) in &others[..if spared { 2 } else { 1 }] {
                let leases = training(leases);
                let heartbeat = Heartbeat { leases, ..heartbeat(now, Some(genesis()), None) };
                node.handle(Millis(now), heard_heartbeat(*peer, heartbeat));
            }
            node.handle(Millis(now), Event::Tick);
        }
        assert_eq!(node.paths(), [PathId(if spared { 2 } else { 0 })]);
    }
}

#[test]
fn one_more_trainer_of_a_path_begins_with_the_state_of_another() {
    let trainer = BlobRef::of(b"trainer of slot 0");
    // Whoever trains the path already answers for its own trainer, and trains on.
    let mut node = beside(0, 1);
    node.keep_trainer(PathId(0), trainer);
    node.handle(Millis(5), Event::Tick);
    let asked = |path| Event::Asked { from: THIRD, token: ReplyToken(5), request: Request::Path(PathId(path)) };
    let answer = |hand_off| vec![Action::Reply { token: ReplyToken(5), response: Response::Path(hand_off) }];
    let state = PathHandOff { trainer: Some(trainer), ..PathHandOff::default() };
    assert_eq!(node.handle(Millis(10), asked(2)), answer(Some(state)));
    assert_eq!(node.handle(Millis(20), asked(3)), answer(None), "it trains no other path");
    assert_eq!(node.handle(Millis(30), asked(6)), answer(None), "there is no such slot");

    // The newcomer asks it.
    let mut node = Node::restore(ME, three_each(), vec![]);
    node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
    let leases = vec![Lease { trainer: Some(trainer), ..lease(0, 0, Stage::Training) }];
    let entry = |peer, leases| DirectoryEntry { peer, addresses: vec![], leases };
    let fourth = PeerKey([60; 32]);
    let entries = vec![entry(OTHER, leases), entry(THIRD, training(&[1])), entry(fourth, training(&[3]))];
    let mut actions = Vec::new();
    for id in 1..=3 {
        let response = Some(Response::Directory(entries.clone()));
        actions.extend(node.handle(Millis(10), Event::Answered { id: RequestId(id), response }));
    }
    let asks = |action: &Action| matches!(action, Action::Ask { to: OTHER, request: Request::Path(PathId(2)), .. });
    assert_eq!(node.paths(), [PathId(2)]);
    assert!(actions.iter().any(asks), "{actions:?}");
}

#[test]
fn a_trainer_of_a_path_with_three_moves_to_one_with_one() {
    for others in [&[0, 4, 1][..], &[0, 1]] {
        let mut node = beside(2, 0);
        for now in (250..60_000).step_by(250) {
            for (index, slot) in others.iter().enumerate() {
                let peer = if index == 0 { OTHER } else { PeerKey([index as u8 + 50; 32]) };
                let leases = training(&[*slot]);
                let heartbeat = Heartbeat { leases, ..heartbeat(now + 1, Some(genesis()), None) };
                node.handle(Millis(now), heard_heartbeat(peer, heartbeat));
            }
            node.handle(Millis(now), Event::Tick);
        }
        assert_eq!(node.paths(), [PathId(if others.len() == 3 { 3 } else { 2 })]);
    }
}

#[test]
fn a_trainer_of_a_path_with_three_finds_a_path_whose_trainers_it_does_not_know() {
    let entry = |number, slot| DirectoryEntry {
        peer: PeerKey([number; 32]),
        addresses: vec!["somewhere".to_owned()],
        leases: training(&[slot]),
    };
    // Whether the directory names a third trainer of path 0.
    for third in [true, false] {
        let mut node = beside(2, 0);
        for now in (250..10_000).step_by(250) {
            hear(&mut node, now, 0);
            let of_path_1 = Heartbeat { leases: training(&[1]), ..heartbeat(now, Some(genesis()), None) };
            node.handle(Millis(now), heard_heartbeat(PeerKey([52; 32]), of_path_1));
            for action in node.handle(Millis(now), Event::Tick) {
                if let Action::Ask { id, request: Request::Directory { .. }, .. } = action {
                    let entries = if third { vec![entry(51, 4)] } else { vec![] };
                    let response = Some(Response::Directory(entries));
                    node.handle(Millis(now), Event::Answered { id, response });
                }
            }
        }
        node.handle(Millis(10_000), Event::Answered { id: RequestId(9), response: None });
        assert_eq!(node.paths(), [PathId(if third { 3 } else { 2 })]);
    }
}
