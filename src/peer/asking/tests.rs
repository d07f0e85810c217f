//! A peer that runs is asked, and says what a collected folder says; what it does not answer, it refuses in words.

use std::sync::Arc;

use super::*;
use crate::config::DeviceChoice;
use crate::network::{Multiaddr, NetworkEvent};
use crate::peer::sampling::{Wish, continue_prompt};
use crate::peer::scoring::{PathScore, score_corpus, score_test_text};
use crate::peer::start::store_folder;
use crate::peer::tiny_run::{Tiny, documents};
use crate::peer::visiting::{Visit, visit};
use crate::peer::{Collected, News, StoredBlobs, Turns, collect_from_swarm};
use crate::protocol::questions::{Played, Question};
use crate::protocol::{Record, Request, Response, wire};
use crate::store::StoreFolder;
use crate::text::{CorpusSource, read_corpus};

async fn visitor(address: &Multiaddr) -> Visit {
    visit(std::slice::from_ref(address), Arc::new(StoredBlobs::default())).await.unwrap()
}

async fn ask(visit: &mut Visit, question: Question) -> Result<Response, String> {
    let request = Request::Play(question);
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

/// All that can be asked, of the swarm and of the folder.
fn ask_both(swarm: &mut dyn Players, local: &mut dyn Players, corpus: CorpusSource) {
    let corpus = read_corpus(&corpus, &local.config().text).unwrap();
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
    let tiny = Tiny::found(true);
    let (peer, _network, address, mut news) = tiny.start(tiny.peer("founder", &[]), true, &Arc::default()).await;
    let mut scored = 0;
    while scored < 2 {
        scored += usize::from(matches!(news.recv().await, Some(News::Scored { .. })));
    }
    let target = tiny.home.path().join("all");
    collect_from_swarm(std::slice::from_ref(&address), &target, &mut |_| {}).await.unwrap();
    let corpus = CorpusSource::Paths(vec![tiny.home.path().join("corpus.jsonl")]);
    let both = tokio::task::spawn_blocking(move || {
        let mut local = Local::new(Collected::open(&target).unwrap(), DeviceChoice::Cpu).unwrap();
        let mut swarm = Swarm::visit(&address, Box::new(|line| panic!("{line}"))).unwrap();
        ask_both(&mut swarm, &mut local, corpus);
    });
    both.await.unwrap();
    peer.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_peer_does_not_hold_or_take_it_refuses_in_words() {
    let tiny = Tiny::found(false);
    let folder = tiny.peer("alone", &[("0.0", 0), ("1.0", 0)]);
    let mut store = StoreFolder::open(&store_folder(&folder), tiny.run).unwrap();
    let lease = Record::Lease { path: PathId(0), held: true, standby: false };
    store.journal.append(&wire::encode(&lease).unwrap()).unwrap();
    drop(store);
    let (peer, _network, address, _news) = tiny.start(folder, false, &Arc::default()).await;
    let mut visit = visitor(&address).await;
    let score = |path, tokens: Vec<u32>| Question::Score(Player::Path(PathId(path)), vec![Piece { tokens, from: 1 }]);
    let answer = ask(&mut visit, score(0, vec![1, 2, 3])).await;
    assert!(matches!(answer, Ok(Response::Played(Played::Nats(nats))) if nats.len() == 1));
    let refusals = [
        (score(1, vec![1, 2]), "I do not hold module 0.1 of path 1"),
        (score(2, vec![1, 2]), "the run has no path 2"),
        (score(0, vec![1, u32::MAX]), "outside the vocabulary"),
        (score(0, vec![1; 100_000]), "at most"),
        (Question::Route(Vec::new()), "nothing in it to read"),
        (Question::Route(vec![vec![1; 9]]), "at most 8"),
    ];
    for (question, expected) in refusals {
        let refusal = ask(&mut visit, question).await.unwrap_err();
        assert!(refusal.contains(expected), "{refusal}");
    }
    let scored = tokio::task::spawn_blocking(move || {
        let mut swarm = Swarm::visit(&address, Box::new(|line| panic!("{line}"))).unwrap();
        score_test_text(&mut swarm, None).map(drop).unwrap_err().to_string()
    });
    let reason = scored.await.unwrap();
    assert!(reason.contains("the swarm at /ip4/") && reason.contains("does not share its text"), "{reason}");
    peer.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_too_many_is_refused_at_once_and_the_others_are_answered_in_turn() {
    let (tiny, turns) = (Tiny::found(false), Arc::new(Turns::default()));
    let (peer, _network, address, _news) = tiny.start(tiny.peer("founder", &[]), false, &turns).await;
    let mut visit = visitor(&address).await;
    let held = turns.clone();
    let (let_go, wait) = std::sync::mpsc::sync_channel::<()>(1);
    let (taken, is_taken) = std::sync::mpsc::sync_channel(1);
    let holder = std::thread::spawn(move || {
        let _turn = held.take();
        taken.send(()).unwrap();
        wait.recv().unwrap();
    });
    is_taken.recv().unwrap();
    let question = Question::Score(Player::Ancestor, vec![Piece { tokens: vec![1, 2, 3], from: 1 }]);
    let bytes = wire::encode(&Request::Play(question)).unwrap();
    for id in 100..103 {
        visit.client.network.request(id, visit.contact, vec![address.clone()], bytes.clone()).unwrap();
    }
    let mut answers = Vec::new();
    while answers.len() < 3 {
        if let NetworkEvent::Response { result, .. } = visit.client.events.next().await.unwrap() {
            answers.push(wire::decode::<Response>(&result.unwrap()).unwrap());
            if answers.len() == 1 {
                let_go.send(()).unwrap();
            }
        }
    }
    assert!(matches!(&answers[0], Response::Refused(reason) if reason.contains("busy")), "{:?}", answers[0]);
    assert!(answers[1..].iter().all(|answer| matches!(answer, Response::Played(Played::Nats(_)))), "{answers:?}");
    holder.join().unwrap();
    peer.stop().await.unwrap();
}
