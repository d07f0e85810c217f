//! Asks the peers for their status: once a second while somebody looks or a peer has not answered yet, else more seldom.
//! In a process of very many peers, each is asked in its turn. A service manager is told when all that were asked have answered:
//! its watchdog ends a process in which the driver of a peer hangs.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::failpoints::failpoint;
use crate::survival::ended;
use crate::telemetry::Telemetry;
use crate::telemetry::now_ms;
use crate::telemetry::systemd;

/// While there are viewers.
const TICK: Duration = Duration::from_secs(1);

/// Ticks between two looks when there are none.
const TICKS_UNWATCHED: u64 = 5;

/// A peer that is busy for longer is asked again at the next tick.
const TIMEOUT: Duration = Duration::from_millis(900);

/// Peers asked at a tick. A status tells of all peers that its peer knows, so a thousand of them take a while.
pub const ASKED_PER_TICK: usize = 250;

/// The task that asks. It ends when this is dropped.
#[must_use = "nobody is asked once this is dropped"]
pub struct Sampler(JoinHandle<()>);

impl Drop for Sampler {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Telemetry {
    /// Begins to ask. Must be called within a tokio runtime.
    pub fn sample(&self) -> Sampler {
        let telemetry = self.clone();
        Sampler(tokio::spawn(async move {
            systemd::tell_ready();
            while !ended(telemetry.look_each_tick()).await {}
        }))
    }

    async fn look_each_tick(&self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for ticks in 0_u64.. {
            tick.tick().await;
            failpoint("sampler");
            // Of a peer that ends before it has answered, nothing would be recorded.
            let wants = self.is_watched() || self.has_unanswered();
            if (wants || ticks.is_multiple_of(TICKS_UNWATCHED)) && self.look().await {
                systemd::tell_alive();
            }
        }
    }

    /// Asks the peers whose turn it is, all at once, and tells the viewers. Whether all have answered; while there is no peer,
    /// as before the first and between two stages, nothing is asked.
    pub(super) async fn look(&self) -> bool {
        let asked_ms = now_ms();
        let asked = self.state().take_turn().into_iter().map(async |(peer, handle)| {
            let status = tokio::time::timeout(TIMEOUT, handle.status()).await;
            (peer, status.ok().flatten())
        });
        let mut all_answered = true;
        for (peer, status) in futures::future::join_all(asked).await {
            match status {
                Some(status) => self.answered(&peer, status),
                None => {
                    all_answered = false;
                    self.state().has_not_answered(&peer, asked_ms);
                }
            }
        }
        self.tell();
        all_answered
    }

    /// Tells the viewers and `metrics.jsonl` what is new.
    pub(super) fn tell(&self) {
        self.send_frame();
        self.state().record(now_ms());
    }

    /// The status of every peer that answers, with the hashes of its parameters, as `pathswarm status` shows it.
    pub async fn statuses(&self) -> Vec<crate::peer::PeerStatus> {
        let asked = self.handles().into_iter().map(async |(_, handle)| {
            tokio::time::timeout(Duration::from_secs(10), handle.status_with_hashes()).await.ok().flatten()
        });
        let here = futures::future::join_all(asked).await.into_iter().flatten();
        here.chain(self.told_statuses()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::driver::handle::PeerHandle;

    #[tokio::test]
    async fn a_look_at_a_peer_whose_driver_hangs_is_no_sign_of_life() {
        let telemetry = Telemetry::default();
        assert!(telemetry.look().await, "there is no peer that could hang");
        let (commands, _hanging) = tokio::sync::mpsc::channel(1);
        telemetry.attach("a", PeerHandle { commands });
        assert!(!telemetry.look().await);
        telemetry.detach("a");
        assert!(telemetry.look().await);
    }
}
