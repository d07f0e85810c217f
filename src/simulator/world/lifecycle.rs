//! Starts the planned faults, and restarts peers.

use crate::protocol::{Contact, Event, Node};
use crate::simulator::peer::peer_key;
use crate::simulator::scenario::faults::{Kind, Planned, What};
use crate::simulator::world::{Due, World};

/// A crash comes in the middle of a list of actions: after at most this many.
const MOST_ACTIONS: u64 = 6;

impl World {
    /// Begins one of the planned faults; one that no longer applies is skipped.
    pub(super) fn inject(&mut self, number: usize) {
        let Planned { kind, what, when_ms } = self.planned[number].clone();
        let index = match what {
            What::Cut(cut) => {
                self.counts.fault(kind);
                self.cuts.push((when_ms.end, cut));
                return;
            }
            What::Peer(index) => index,
        };
        let needed = matches!(kind, Kind::Gone | Kind::Leave) && !self.can_be_spared(index);
        if !self.peers[index].up || self.peers[index].gone || needed {
            return;
        }
        self.counts.fault(kind);
        let now_ms = self.now_ms;
        self.trace.fault(now_ms, index, format_args!("{} until {}", kind.name(), when_ms.end));
        match kind {
            Kind::Freeze => self.freeze(index, when_ms.end),
            Kind::Hang => {
                let trainer = self.any_trainer(index);
                self.peers[index].trainers[trainer].hang();
            }
            Kind::TrainerDies => self.kill_trainer(index),
            Kind::Leave => {
                self.peers[index].gone = true;
                self.note_leave(index);
                self.event_at(index, 0, Event::Leave);
            }
            Kind::Gone => {
                self.peers[index].gone = true;
                self.crash_soon(index);
            }
            Kind::FullDisk => {
                self.peers[index].full_until_ms = when_ms.end;
                self.schedule(when_ms.end, (index, 0), Due::Space);
            }
            Kind::Crash | Kind::Flap => {
                self.crash_soon(index);
                self.schedule(when_ms.end, (index, 0), Due::Back);
            }
            Kind::Split | Kind::SplitInThree | Kind::OneWay | Kind::JoinStorm => {}
        }
    }

    /// The machine freezes, with everything that runs on it.
    fn freeze(&mut self, index: usize, until_ms: u64) {
        let peer = &mut self.peers[index];
        let from_ms = peer.frozen_until_ms.max(self.now_ms);
        let for_ms = until_ms.saturating_sub(from_ms);
        peer.trainers.iter_mut().for_each(|trainer| trainer.stand_still(for_ms));
        peer.frozen_until_ms = peer.frozen_until_ms.max(until_ms);
    }

    fn go_down(&mut self, index: usize) {
        self.peers[index].go_down();
        self.incarnations[index] += 1;
    }

    /// It has left cleanly.
    pub(super) fn go(&mut self, index: usize) {
        self.go_down(index);
        for hearers in self.hearers.values_mut() {
            hearers.remove(&index);
        }
    }

    /// In the middle of the peer's next actions.
    fn crash_soon(&mut self, index: usize) {
        let actions = self.rng.draw([0, MOST_ACTIONS].into());
        self.peers[index].dies_after = Some(actions);
    }

    pub(super) fn crash(&mut self, index: usize) {
        let now_ms = self.now_ms;
        self.trace.fault(now_ms, index, format_args!("crashes"));
        self.note_crash(index);
        self.go_down(index);
        self.peers[index].disk.crash(&mut self.rng);
        for hearers in self.hearers.values_mut() {
            hearers.remove(&index);
        }
    }

    pub(super) fn come_back(&mut self, index: usize) {
        if self.peers[index].gone {
            return;
        }
        if self.peers[index].dies_after.is_some() {
            self.crash(index);
        }
        if self.peers[index].up {
            return;
        }
        let compacts = self.rng.chance(0.5);
        let (plan, trainers) = (self.unamended_plan(), self.scenario.trainers(index));
        let peer = &mut self.peers[index];
        peer.up = true;
        let node = Node::restore(peer.key, plan, peer.disk.records()).with_trainers(trainers);
        peer.node = match peer.disk.amendment {
            Some(amended) => node.amended(amended),
            None => node,
        };
        let lost = peer.node.modules_without_lists();
        assert!(lost.is_empty(), "the disk of peer {index} has lost lists of {lost:?}");
        if compacts {
            peer.disk.journal = peer.node.records();
        }
        let mut kept = peer.node.referenced_blobs();
        kept.extend(self.plan.genesis.values().map(|blob| blob.hash));
        peer.disk.remove_all_but(|blob| kept.contains(&blob));
        let others = (0..self.peers.len()).filter(|other| *other != index);
        let contacts = others.map(|other| Contact { peer: peer_key(other), addresses: vec![] }).collect();
        self.event_at(index, 0, Event::Join(contacts));
    }
}
