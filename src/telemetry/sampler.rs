//! Asks the peers for their status: once a second while somebody looks or a peer has not answered yet, else more seldom.
//! In a process of very many peers, each is asked in its turn.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::telemetry::Telemetry;
use crate::telemetry::now_ms;

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
            let mut tick = tokio::time::interval(TICK);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            for ticks in 0_u64.. {
                tick.tick().await;
                // Of a peer that ends before it has answered, nothing would be recorded.
                let wants = telemetry.is_watched() || telemetry.has_unanswered();
                if wants || ticks.is_multiple_of(TICKS_UNWATCHED) {
                    telemetry.look().await;
                }
            }
        }))
    }

    /// Asks the peers whose turn it is, all at once, and tells the viewers.
    pub(super) async fn look(&self) {
        let asked_ms = now_ms();
        let asked = self.state().take_turn().into_iter().map(async |(peer, handle)| {
            let status = tokio::time::timeout(TIMEOUT, handle.status()).await;
            (peer, status.ok().flatten())
        });
        for (peer, status) in futures::future::join_all(asked).await {
            match status {
                Some(status) => self.answered(&peer, status),
                None => self.state().has_not_answered(&peer, asked_ms),
            }
        }
        self.tell();
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
