//! Tests of catch-up: by replay, by a whole state, and past donors that cannot help.

use crate::protocol::limits::GAP_TIMEOUT_MS;
use crate::protocol::node::tests::*;
use crate::protocol::{ReplyToken, Request, RequestId, Response};

/// A member at genesis that has heard of this head of `THIRD` and sent a request, with that request.
fn asked(best: Head) -> (Node, RequestId, Action) {
    let mut node = member(&[]);
    node.handle(Millis(0), heard_heartbeat(THIRD, heartbeat(1, Some(best), Some((1, OTHER)))));
    node.handle(Millis(250), Event::Tick);
    let actions = node.handle(Millis(250 + GAP_TIMEOUT_MS), Event::Tick);
    asked_in(node, &actions)
}

fn asked_in(node: Node, actions: &[Action]) -> (Node, RequestId, Action) {
    let asked = actions.iter().find(|action| matches!(action, Action::Ask { .. })).cloned().unwrap();
    let Action::Ask { id, .. } = asked else { unreachable!() };
    (node, id, asked)
}

fn question(id: RequestId, to: PeerKey, from: Option<Head>) -> Action {
    let from = from.map(|head| (head.version, head.update));
    Action::Ask { id, to, request: Request::CatchUp { module: MODULE, from } }
}

fn fetched(blob: BlobRef, found: bool) -> Event {
    Event::Fetched { blob: blob.hash, found }
}

#[test]
fn a_member_that_missed_a_few_updates_replays_them() {
    let chain = updates(2, OTHER);
    let (mut node, id, asked) = asked(head(&chain[1]));
    assert_eq!(asked, question(id, THIRD, Some(genesis())));
    let now = Millis(1_000);
    let fetches = |version| {
        vec![
            Action::Fetch { blob: average(version), from: vec![OTHER, THIRD] },
            Action::Outer(Outer::Apply {
                module: MODULE,
                version: Version(version),
                from: state(version - 1),
                average: average(version),
                portion: BOTH,
            }),
        ]
    };
    let mut actions = node.handle(now, Event::Answered { id, response: Some(Response::Replay(chain.clone())) });
    actions.extend(node.handle(now, fetched(average(1), true)));
    assert_eq!(actions, fetches(1));
    let applied = |version| Event::Applied { module: MODULE, version: Version(version), state: Some(state(version)) };
    let advanced = |version, sequence| {
        let signed = &chain[version as usize - 1];
        let heartbeat = Heartbeat {
            addresses: vec![],
            leases: vec![lease(0, version, Stage::Training)],
            // The owner itself was not heard.
            claim: vec![],
            ..heartbeat(sequence, Some(head(signed)), Some((1, OTHER)))
        };
        vec![
            Action::Persist(Record::Head(signed.clone())),
            Action::Report(Report::Advanced { module: MODULE, version: Version(version), contributions: 2 }),
            publish(Message::Heartbeat(heartbeat)),
        ]
    };
    let mut actions = node.handle(now, applied(1));
    actions.extend(node.handle(now, fetched(average(2), true)));
    assert_eq!(actions, [advanced(1, 4), fetches(2)].concat());
    assert_eq!(node.handle(now, applied(2)), advanced(2, 5));
    assert_eq!(node.states(), vec![(MODULE, Version(2), state(2))]);
}

#[test]
fn a_member_that_missed_many_updates_takes_a_whole_state() {
    let chain = updates(20, OTHER);
    let best = head(&chain[19]);
    let (mut node, id, _) = asked(best);
    let kept = chain[4..].to_vec();
    let now = Millis(1_000);
    let answered = node.handle(now, Event::Answered { id, response: Some(Response::Snapshot(kept.clone())) });
    assert_eq!(answered, vec![Action::Fetch { blob: state(20), from: vec![THIRD] }]);
    assert_eq!(
        installed(&mut node, now, state(20)),
        vec![
            Action::Persist(Record::Installed { updates: kept, replays_from: Version(20) }),
            Action::Report(Report::ChainSwitched { module: MODULE, from: Version(0), to: Version(20) }),
        ],
        "the state before is the base state in training, and is kept"
    );
}

#[test]
fn a_member_that_took_a_whole_state_does_not_serve_a_replay_of_what_it_never_had() {
    let chain = updates(2, OTHER);
    let (mut node, id, _) = asked(head(&chain[1]));
    node.handle(Millis(1_000), Event::Answered { id, response: Some(Response::Snapshot(chain.clone())) });
    installed(&mut node, Millis(1_000), state(2));
    let request = |from: Head| Request::CatchUp { module: MODULE, from: Some((from.version, from.update)) };
    let ask = |request| Event::Asked { from: THIRD, token: ReplyToken(1), request };
    let reply = |response| vec![Action::Reply { token: ReplyToken(1), response }];
    let answer = node.handle(Millis(1_001), ask(request(genesis())));
    assert_eq!(answer, reply(Response::Snapshot(chain.clone())));
    let answer = node.handle(Millis(1_001), ask(request(head(&chain[1]))));
    assert_eq!(answer, reply(Response::Replay(vec![])));
}

#[test]
fn a_replay_whose_average_cannot_be_had_ends_in_a_whole_state() {
    let chain = updates(2, OTHER);
    let (mut node, id, _) = asked(head(&chain[1]));
    node.handle(Millis(1_000), Event::Answered { id, response: Some(Response::Replay(chain.clone())) });
    let mut now = 1_000;
    loop {
        node.handle(Millis(now), fetched(average(1), false));
        now += 500;
        node.handle(Millis(now), heard_heartbeat(THIRD, heartbeat(now, Some(head(&chain[1])), Some((1, OTHER)))));
        let actions = node.handle(Millis(now), Event::Tick);
        if let Some(asked) = actions.iter().find(|action| matches!(action, Action::Ask { .. })) {
            let Action::Ask { id, .. } = asked else { unreachable!() };
            assert_eq!(*asked, question(*id, THIRD, None));
            return;
        }
        assert!(now < 20_000, "no further request is sent");
    }
}

#[test]
fn a_replay_that_begins_with_a_refused_update_does_not_stop_catch_up() {
    let chain = updates(2, OTHER);
    let (mut node, id, _) = asked(head(&chain[1]));
    node.handle(Millis(1_000), Event::Answered { id, response: Some(Response::Replay(chain.clone())) });
    node.handle(Millis(1_000), fetched(average(1), true));
    node.handle(Millis(1_000), Event::Applied { module: MODULE, version: Version(1), state: None });
    let mut questions = 0;
    for now in (1_250..4_000).step_by(250) {
        node.handle(Millis(now), heard_heartbeat(THIRD, heartbeat(now, Some(head(&chain[1])), Some((1, OTHER)))));
        for action in node.handle(Millis(now), Event::Tick) {
            if let Action::Ask { id, .. } = action {
                questions += 1;
                node.handle(Millis(now), Event::Answered { id, response: Some(Response::Replay(chain.clone())) });
            }
        }
    }
    assert!(questions > 1, "it keeps sending requests");
}

#[test]
fn absurd_numbers_in_a_chain_are_refused() {
    let chain = updates(3, OTHER);
    let hostile: [fn(&mut Vec<SignedUpdate>); 5] = [
        |chain| chain[0].update.version = Version(u64::MAX),
        |chain| chain[2].update.weight = u64::MAX,
        |chain| chain.iter_mut().for_each(|signed| signed.update.weight = u64::MAX - 1),
        |chain| chain[0].update.state.bytes = u64::MAX,
        |chain| chain[1].update.contributions[0].path = PathId(u32::MAX),
    ];
    for change in hostile {
        let mut lie = chain.clone();
        change(&mut lie);
        for at in 1..lie.len() {
            lie[at].update.parent = head(&lie[at - 1]).update;
        }
        for count in 1..=lie.len() {
            let (mut node, id, _) = asked(head(lie.last().unwrap()));
            let response = Some(Response::Snapshot(lie[..count].to_vec()));
            let actions = node.handle(Millis(1_000), Event::Answered { id, response });
            assert!(
                !actions.iter().any(|action| matches!(action, Action::Outer(Outer::Apply { .. }) | Action::Persist(_)))
            );
            let response = Some(Response::Replay(lie[..count].to_vec()));
            node.handle(Millis(1_000), Event::Answered { id, response });
        }
    }
}

#[test]
fn an_average_applied_to_an_abandoned_chain_does_not_affect_the_next() {
    // A lighter chain here and a heavier one elsewhere, of one update each, and the second update of both.
    let mut light = vec![update(genesis(), 1, OTHER)];
    light[0].update.contributions.edit(|all| all.truncate(1));
    light[0].update.weight = 100;
    light.push(update(head(&light[0]), 1, OTHER));
    let mut heavy = updates(2, THIRD);
    for (signed, number) in heavy.iter_mut().zip([11, 12]) {
        (signed.update.average, signed.update.state) = (average(number), state(number));
    }
    heavy[1].update.parent = head(&heavy[0]).update;

    let mut node = member_with_owner(&light[..1]);
    for peer in [FOURTH, THIRD] {
        node.handle(Millis(0), heard_heartbeat(peer, heartbeat(1, Some(head(&heavy[0])), Some((1, OTHER)))));
    }
    node.handle(Millis(250), Event::Tick);
    let actions = node.handle(Millis(1_000), Event::Tick);
    let (mut node, id, _) = asked_in(node, &actions);
    let now = Millis(1_000);
    node.handle(now, Event::Answered { id, response: Some(Response::Snapshot(heavy[..1].to_vec())) });
    // While the state of the heavier chain is being fetched, the second average of the lighter one is being applied.
    let apply = |from, average| {
        vec![Action::Outer(Outer::Apply { module: MODULE, version: Version(2), from, average, portion: BOTH })]
    };
    node.handle(now, heard(OTHER, Message::Update(light[1].clone())));
    assert_eq!(node.handle(now, fetched(average(2), true)), apply(state(1), average(2)));
    installed(&mut node, now, state(11));
    node.handle(now, heard(OTHER, Message::Update(heavy[1].clone())));
    assert_eq!(node.handle(now, fetched(average(12), true)), apply(state(11), average(12)));
    let applied = |made: BlobRef| Event::Applied { module: MODULE, version: Version(2), state: Some(made) };
    let reports = |actions: Vec<Action>| -> Vec<Action> {
        actions.into_iter().filter(|action| matches!(action, Action::Report(_))).collect()
    };
    assert_eq!(reports(node.handle(now, applied(state(2)))), vec![], "this state belongs to the abandoned chain");
    let advanced = Report::Advanced { module: MODULE, version: Version(2), contributions: 2 };
    assert_eq!(reports(node.handle(now, applied(state(12)))), vec![Action::Report(advanced)]);
}

#[test]
fn the_speed_of_a_replay_does_not_make_the_next_update_overdue() {
    let chain = updates(3, OTHER);
    let (mut node, id, _) = asked(head(&chain[2]));
    let replay = Response::Replay(chain.clone());
    let mut actions = node.handle(Millis(1_000), Event::Answered { id, response: Some(replay) });
    for version in 1..=3 {
        let now = Millis(1_000 + 2_000 * version);
        node.handle(now, fetched(average(version), true));
        let state = Some(state(version));
        actions.extend(node.handle(now, Event::Applied { module: MODULE, version: Version(version), state }));
    }
    let best = head(&chain[2]);
    assert_eq!(node.states().last().map(|(_, version, _)| *version), Some(Version(3)));
    // One of two paths has been trained. The other is slow.
    node.handle(Millis(8_000), heard(OTHER, Message::Offer(offer(1, best))));
    for second in 8..300 {
        let leases = vec![lease(1, 3, Stage::Waiting)];
        let lives = Heartbeat { leases, ..heartbeat(second, Some(best), Some((1, OTHER))) };
        actions.extend(node.handle(Millis(second * 1_000), heard_heartbeat(OTHER, lives)));
        actions.extend(pass(&mut node, second * 1_000, second * 1_000 + 900).into_iter().map(|(_, action)| action));
    }
    let stepped_down = |action: &&Action| matches!(action, Action::Report(Report::SteppedDown { .. }));
    assert_eq!(actions.iter().find(stepped_down), None);
}
