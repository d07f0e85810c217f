//! Tests of a running peer's answers: they equal those of a collected folder, and refusals give a reason.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::config::{Answer, DeviceChoice, MachineConfig, Precision};
use crate::model::{PathModel, open_device};
use crate::network::{Multiaddr, NetworkEvent};
use crate::outer::ModuleState;
use crate::peer::client::{Visit, visit};
use crate::peer::folder::store_folder;
use crate::peer::inference::client::*;
use crate::peer::inference::model_slot::nats;
use crate::peer::inference::sample::{Wish, continue_prompt};
use crate::peer::inference::score::{PathScore, score_corpus, score_test_text};
use crate::peer::tests::tiny_run::{Tiny, documents, machine};
use crate::peer::{Collected, DeviceScheduler, PeerEvent, StoredBlobs, collect_from_swarm};
use crate::protocol::wire::encoding;
use crate::protocol::{Record, Request, Response};
use crate::query::{Query, QueryResult};
use crate::store::StoreFolder;
use crate::text::{CorpusSource, read_corpus};

async fn visitor(address: &Multiaddr) -> Visit {
    visit(std::slice::from_ref(address).into(), Arc::new(StoredBlobs::default())).await.unwrap()
}

async fn ask(visit: &mut Visit, question: Query) -> Result<Response, String> {
    let request = Request::Query(question);
    visit.client.ask_each(&[(visit.contact, request)]).await.unwrap().remove(0)
}

fn assert_same(swarm: &[PathScore], local: &[PathScore]) {
    assert_eq!(swarm.len(), local.len());
    for (swarm, local) in swarm.iter().zip(local) {
        assert_eq!((swarm.path, swarm.domain, swarm.documents), (local.path, local.domain, local.documents));
        for (swarm, local) in [(swarm.ancestor, local.ancestor), (swarm.dipaco, local.dipaco)] {
            assert_eq!((swarm.tokens, swarm.bytes), (local.tokens, local.bytes));
            assert!((swarm.nats - local.nats).abs() <= 1e-4 * local.nats, "{} {}", swarm.nats, local.nats);
        }
    }
}

/// All kinds of queries, to the swarm and to the folder.
fn ask_both(swarm: &mut dyn InferenceClient, local: &mut dyn InferenceClient, corpus: CorpusSource) {
    let corpus = read_corpus(&corpus, local.config().reading(), &AtomicBool::new(false)).unwrap();
    for every in [None, Some(5)] {
        assert_same(&score_test_text(swarm, every).unwrap(), &score_test_text(local, every).unwrap());
        assert_same(&score_corpus(swarm, &corpus, every).unwrap(), &score_corpus(local, &corpus, every).unwrap());
        let wish = Wish { tokens: 70, temperature: 0.0, every, ..Wish::default() };
        for prompt in &documents()[..2] {
            let made = continue_prompt(swarm, prompt, &wish).unwrap();
            assert_eq!(made, continue_prompt(local, prompt, &wish).unwrap());
        }
    }
    assert_eq!((swarm.answered().len(), local.answered().len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_is_asked_says_what_a_collected_folder_says() {
    let tiny = Tiny::create(true);
    let (peer, _network, address, mut news) = tiny.start(tiny.peer("creator", &[]), true, &Arc::default()).await;
    let mut scored = 0;
    while scored < 2 {
        scored += usize::from(matches!(news.recv().await, Some(PeerEvent::Scored { .. })));
    }
    let target = tiny.home.path().join("all");
    collect_from_swarm(std::slice::from_ref(&address), &target, &mut |_| {}).await.unwrap();
    let corpus = CorpusSource::Paths(vec![tiny.home.path().join("corpus.jsonl")]);
    let both = tokio::task::spawn_blocking(move || {
        let mut local = Local::new(Collected::open(&target).unwrap(), DeviceChoice::Cpu).unwrap();
        let mut swarm = Swarm::visit(&address, DeviceChoice::Cpu, Box::new(|line| panic!("{line}"))).unwrap();
        ask_both(&mut swarm, &mut local, corpus);
    });
    both.await.unwrap();
    peer.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_peer_does_not_hold_or_take_it_refuses_in_words() {
    let tiny = Tiny::create(false);
    let folder = holder(&tiny, "alone", 0, &[("0.0", 0), ("1.0", 0)]);
    let (peer, _network, address, _news) = tiny.start(folder, false, &Arc::default()).await;
    let mut visit = visitor(&address).await;
    let score =
        |path, tokens: Vec<u32>| Query::Score(QueriedModel::Path(PathId(path)), vec![TokenSpan { tokens, from: 1 }]);
    let answer = ask(&mut visit, score(0, vec![1, 2, 3])).await;
    assert!(matches!(answer, Ok(Response::QueryResult(QueryResult::Nats(nats))) if nats.len() == 1));
    let refusals = [
        (score(1, vec![1, 2]), "this peer does not hold module 0.1 of path 1"),
        (score(2, vec![1, 2]), "the run has no path 2"),
        (score(0, vec![1, u32::MAX]), "outside the vocabulary"),
        (score(0, vec![1; 100_000]), "at most"),
        (Query::Route(Vec::new()), "the query is empty"),
        (Query::Route(vec![vec![1; 9]]), "at most 8"),
    ];
    for (question, expected) in refusals {
        let refusal = ask(&mut visit, question).await.unwrap_err();
        assert!(refusal.contains(expected), "{refusal}");
    }
    let scored = tokio::task::spawn_blocking(move || {
        let mut swarm = Swarm::visit(&address, DeviceChoice::Cpu, Box::new(|line| panic!("{line}"))).unwrap();
        score_test_text(&mut swarm, None).map(drop).unwrap_err().to_string()
    });
    let reason = scored.await.unwrap();
    assert!(reason.contains("the swarm at /ip4/") && reason.contains("does not share its text"), "{reason}");
    peer.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_answers_whom_its_profile_says() {
    let question = || Query::Score(QueriedModel::Ancestor, vec![TokenSpan { tokens: vec![1, 2, 3], from: 1 }]);
    for (policy, refusal) in [
        (Answer::Off, Some("this peer answers no queries")),
        (Answer::Members, Some("queries of members only")),
        (Answer::All, None),
    ] {
        let (tiny, machine) = (Tiny::create(false), MachineConfig { answer: policy, ..machine() });
        let (peer, _network, address, _news) =
            tiny.start_on(machine, tiny.peer("creator", &[]), false, &Arc::default()).await;
        let mut stranger = visitor(&address).await;
        match (ask(&mut stranger, question()).await, refusal) {
            (Err(reason), Some(refusal)) => assert!(reason.contains(refusal), "{reason}"),
            (Ok(Response::QueryResult(QueryResult::Nats(_))), None) => {}
            (answer, _) => panic!("{policy:?}: {answer:?}"),
        }
        peer.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_too_many_is_refused_at_once_and_the_others_are_answered_in_turn() {
    let (tiny, scheduler) = (Tiny::create(false), Arc::new(DeviceScheduler::default()));
    let (peer, _network, address, _news) = tiny.start(tiny.peer("creator", &[]), false, &scheduler).await;
    let mut visit = visitor(&address).await;
    let held = scheduler.clone();
    let (let_go, wait) = std::sync::mpsc::sync_channel::<()>(1);
    let (taken, is_taken) = std::sync::mpsc::sync_channel(1);
    let holder = std::thread::spawn(move || {
        let _lease = held.acquire();
        taken.send(()).unwrap();
        wait.recv().unwrap();
    });
    is_taken.recv().unwrap();
    let question = Query::Score(QueriedModel::Ancestor, vec![TokenSpan { tokens: vec![1, 2, 3], from: 1 }]);
    let bytes = encoding::encode(&Request::Query(question)).unwrap();
    for id in 100..103 {
        visit.client.network.request(id, visit.contact, vec![address.clone()], bytes.clone()).unwrap();
    }
    let mut answers = Vec::new();
    while answers.len() < 3 {
        if let NetworkEvent::Response { result, .. } = visit.client.events.next().await.unwrap() {
            answers.push(encoding::decode::<Response>(&result.unwrap()).unwrap());
            if answers.len() == 1 {
                let_go.send(()).unwrap();
            }
        }
    }
    assert!(matches!(&answers[0], Response::Refused(reason) if reason.contains("busy")), "{:?}", answers[0]);
    assert!(
        answers[1..].iter().all(|answer| matches!(answer, Response::QueryResult(QueryResult::Nats(_)))),
        "{answers:?}"
    );
    holder.join().unwrap();
    peer.stop().await.unwrap();
}

/// A stopped peer that holds a path, but only these modules.
fn holder(tiny: &Tiny, name: &str, path: u32, modules: &[(&str, u64)]) -> std::path::PathBuf {
    let folder = tiny.peer(name, modules);
    let mut store = StoreFolder::open(&store_folder(&folder), tiny.run).unwrap();
    let lease = Record::Lease { path: PathId(path), held: true, standby: false };
    store.journal.append(&encoding::encode(&lease).unwrap()).unwrap();
    folder
}

/// The nats of a piece by the ancestor in the place of path 1.
fn nats_of_path_1(tiny: &Tiny, piece: &TokenSpan) -> f64 {
    let config = &tiny.decoded.config;
    let mut model =
        PathModel::new(&config.model, &config.levels, open_device(DeviceChoice::Cpu).unwrap(), Precision::F32).unwrap();
    for (module, state) in &tiny.decoded.genesis {
        let bytes = tiny.blobs.get(state.hash, state.bytes).unwrap().unwrap();
        let count = tiny.decoded.level_counts()[usize::from(module.level)];
        if ["0.1", "1.0"].contains(&module.to_string().as_str()) {
            let state = ModuleState::decode(&bytes, *module, count).unwrap();
            model.set_level(usize::from(module.level), &state.parameters).unwrap();
        }
    }
    nats(&model, std::slice::from_ref(piece)).unwrap()[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_nobody_has_all_modules_of_is_played_where_it_is_asked_for() {
    let (tiny, scheduler) = (Tiny::create(false), Arc::new(DeviceScheduler::default()));
    // No path trains meanwhile.
    let (held, (let_go, wait), (taken, is_taken)) =
        (scheduler.clone(), std::sync::mpsc::sync_channel::<()>(1), std::sync::mpsc::sync_channel(1));
    let trainer = std::thread::spawn(move || {
        let _lease = held.acquire();
        taken.send(()).unwrap();
        wait.recv().unwrap();
    });
    is_taken.recv().unwrap();
    let folders = [holder(&tiny, "a", 0, &[("0.0", 0), ("1.0", 0)]), holder(&tiny, "b", 1, &[("0.1", 0)])];
    let [a, b] = folders.map(|folder| tiny.start(folder, false, &scheduler));
    let ((a, _a_network, a_address, _a_news), (b, b_network, b_address, _b_news)) = (a.await, b.await);
    let piece = TokenSpan { tokens: (0..20).map(|place| place * 13 % 300).collect(), from: 8 };
    let expected = nats_of_path_1(&tiny, &piece);
    let other = b_network.me();
    let result = tokio::task::spawn_blocking(move || {
        let (told, lines) = std::sync::mpsc::sync_channel(100);
        let told = Box::new(move |line: &str| told.send(line.to_owned()).unwrap());
        let mut swarm = Swarm::visit(&a_address, DeviceChoice::Cpu, told).unwrap();
        swarm.hears_of(other, b_address);
        let found = swarm.nats(&[(QueriedModel::Path(PathId(1)), std::slice::from_ref(&piece))]).unwrap();
        assert!(swarm.answered().is_empty());
        let draw = Draw { temperature: 0.0, top_k: 0, seed: 1 };
        assert_eq!(swarm.continue_text(PathId(1), &piece.tokens, 5, &draw).unwrap().len(), 5);
        drop(swarm);
        (found, lines.iter().collect::<Vec<String>>())
    });
    let (found, lines) = result.await.unwrap();
    assert!((found[0][0] - expected).abs() < 1e-4 * expected, "{found:?} {expected}");
    assert!(lines.iter().any(|line| line.contains("path 1: no peer holds all of its modules")), "{lines:?}");
    let_go.send(()).unwrap();
    trainer.join().unwrap();
    a.stop().await.unwrap();
    b.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_whose_player_goes_is_gone_on_with_by_another() {
    let tiny = Tiny::create(true);
    let folder = tiny.peer("creator", &[]);
    let (peer, network, address, mut news) = tiny.start(folder.clone(), true, &Arc::default()).await;
    let mut scored = 0;
    while scored < 2 {
        scored += usize::from(matches!(news.recv().await, Some(PeerEvent::Scored { .. })));
    }
    let target = tiny.home.path().join("all");
    collect_from_swarm(std::slice::from_ref(&address), &target, &mut |_| {}).await.unwrap();
    peer.stop().await.unwrap();
    drop(network);
    // The same run twice, with two swarms that do not know each other.
    let copy = tiny.home.path().join("copy");
    copy_folder(&folder, &copy);
    let scheduler = Arc::default();
    let [a, b] = [folder, copy].map(|folder| tiny.start(folder, true, &scheduler));
    let ((a, a_network, a_address, _a_news), (b, b_network, b_address, _b_news)) = (a.await, b.await);
    let (other, first) = (b_network.me(), a_network.me());
    let (asks, stops) = (tokio::sync::oneshot::channel(), tokio::sync::oneshot::channel());
    let ((half_way, is_half_way), (gone, is_gone)) = (asks, stops);
    let asking = tokio::task::spawn_blocking(move || {
        let mut local = Local::new(Collected::open(&target).unwrap(), DeviceChoice::Cpu).unwrap();
        let mut swarm = Swarm::visit(&a_address, DeviceChoice::Cpu, Box::new(|_| {})).unwrap();
        let (draw, mut text) = (Draw { temperature: 0.9, top_k: 0, seed: 4 }, vec![7, 8, 9]);
        let whole = local.continue_text(PathId(1), &text, 96, &draw).unwrap();
        text.extend(swarm.continue_text(PathId(1), &text, 32, &draw).unwrap());
        assert_eq!(swarm.answered(), [first]);
        swarm.hears_of(other, b_address);
        half_way.send(()).unwrap();
        is_gone.blocking_recv().unwrap();
        text.extend(swarm.continue_text(PathId(1), &text, 64, &draw).unwrap());
        assert_eq!((swarm.answered().len(), &text[3..]), (2, &whole[..]));
    });
    is_half_way.await.unwrap();
    a.stop().await.unwrap();
    drop(a_network);
    gone.send(()).unwrap();
    asking.await.unwrap();
    b.stop().await.unwrap();
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
