//! Leaving in order.
//!
//! A peer that is asked to leave begins nothing new. It pauses its trainers, announces in its leases that it is leaving,
//! so that others take its paths at once, and hands off its modules. It goes once each path has a new holder with the
//! trainer's state, its contributions are counted, and no module is here alone, or after a time-out. If there is no
//! other peer, it goes at once.

use crate::names::{ModuleId, PathId};
use crate::protocol::Node;
use crate::protocol::action::Action;
use crate::protocol::limits::{HEARTBEAT_MS, LEAVE_MS, SWEEP_MS};
use crate::protocol::timers::Timer;
use crate::protocol::wire::message::Stage;

impl Node {
    /// Whether this node has left in order.
    pub fn is_gone(&self) -> bool {
        self.lifecycle.is_gone()
    }

    /// The user asks the peer to leave. The second time, it says goodbye and goes, whatever it still has.
    pub(in crate::protocol) fn leave(&mut self) {
        if self.lifecycle.leaving_since().is_some() {
            return self.go();
        }
        if self.lifecycle.is_gone() {
            return;
        }
        self.lifecycle.leave(self.now);
        if self.membership.roster().anybody_stays(self.now) {
            for number in self.trainers.numbers() {
                let Some((path, _)) = self.trainers.get(number).in_hand() else { continue };
                // Another trainer of the path does not go on from the middle of this phase.
                if self.has_trainer_beside(path) {
                    self.act(Action::EndPhase { path });
                    self.trainers.get_mut(number).cut_short();
                } else {
                    self.act(Action::Pause { path });
                }
            }
            let trained = |stage: Stage| stage.is_active() && stage != Stage::Done;
            let paths: Vec<PathId> =
                self.paths.held().iter().filter(|(_, held)| trained(held.stage())).map(|(path, _)| *path).collect();
            for path in paths {
                self.set_stage(path, Stage::Leaving);
            }
            self.hand_off_modules();
        }
        self.leave_on();
    }

    /// Says goodbye on the modules owned here and names their successors. The next heartbeat makes this node a member
    /// again.
    fn hand_off_modules(&mut self) {
        let owned: Vec<ModuleId> = self.modules.keys().copied().filter(|module| self.owns(*module)).collect();
        for module in owned {
            self.hand_off_ownership(module);
            self.send_goodbye(module);
            // If there is no successor to name, the next in rank claims the module.
            if self.owns(module)
                && let Some(state) = self.modules.get_mut(&module)
            {
                state.leadership.vacate();
                self.drop_collection(module);
            }
        }
        self.out.set_timer(Timer::Heartbeat, self.now + SWEEP_MS);
    }

    /// In every sweep: gives up the paths that others have taken, and goes once nothing holds this peer any more.
    pub(in crate::protocol) fn leave_on(&mut self) {
        let Some(since) = self.lifecycle.leaving_since() else { return };
        let given = self.paths.held().iter().filter(|(_, held)| held.stage() == Stage::Leaving);
        let given: Vec<PathId> = given.map(|(path, _)| *path).collect();
        let (taken, left): (Vec<PathId>, Vec<PathId>) = given.into_iter().partition(|path| self.is_taken(*path));
        for path in taken {
            self.yield_path(path, false);
        }
        let holds = !left.is_empty() || self.trainers.are_at_work() || self.outstanding_offers().next().is_some();
        let waited_ms = self.now.since(since);
        let holds = holds && waited_ms < self.leave_ms(&left);
        let last =
            self.modules.keys().any(|module| self.is_nowhere_else(*module) && waited_ms < self.fetch_ms(*module));
        if !(self.membership.roster().anybody_stays(self.now) && (holds || last)) {
            self.go();
        }
    }

    /// Whether, of the peers that stay, only this one has a module.
    fn is_nowhere_else(&self, module: ModuleId) -> bool {
        let stays = |peer| self.membership.roster().member(peer).is_some_and(|member| !member.leaves());
        let is_here = self.modules.get(&module).is_some_and(|state| state.history.chain().is_some());
        is_here && !self.membership.roster().heads(self.now, module).any(|(peer, _)| stays(peer))
    }

    /// How long to wait for others to take these paths. It includes the time to transfer the trainers' bytes.
    fn leave_ms(&self, left: &[PathId]) -> u64 {
        let bytes = left.iter().map(|path| self.trainer_bytes(*path)).sum();
        LEAVE_MS.saturating_add(self.membership.response_times().bytes_ms(bytes))
    }

    /// Whether another peer has the path and the state of its trainer, or the path has another trainer. If that one leaves
    /// at the same time, its heartbeat says so by then.
    fn is_taken(&self, path: PathId) -> bool {
        let has = |stage: Stage| Self::trains(stage) || stage == Stage::Done;
        let left_ms = self.lifecycle.leaving_since().map_or(0, |since| self.now.since(since));
        self.membership.roster().holders(self.now, path).any(|(_, _, lease)| has(lease.stage))
            || (left_ms >= HEARTBEAT_MS && self.has_trainer_beside(path))
    }

    /// Whether a living peer trains a path in another worker slot.
    fn has_trainer_beside(&self, slot: PathId) -> bool {
        let others = self.plan.slots.of_same_path(slot).filter(|other| *other != slot);
        let mut holders = others.flat_map(|other| self.membership.roster().holders(self.now, other));
        holders.any(|(peer, _, lease)| {
            let trains = Self::trains(lease.stage) || lease.stage == Stage::Done;
            trains && !self.is_not_contributing(lease.path, peer)
        })
    }

    /// Announces the departure, so that no lease has to expire. Nothing follows.
    fn go(&mut self) {
        let modules: Vec<ModuleId> = self.modules.keys().copied().collect();
        for module in modules {
            self.say_goodbye(module);
        }
        self.out.stop_timers();
        self.lifecycle.go();
        self.act(Action::Gone);
    }
}
