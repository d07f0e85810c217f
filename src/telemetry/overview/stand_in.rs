//! Takes the status of a peer of another process, until `follow.rs` does it in full.

use crate::peer::PeerStatus;
use crate::telemetry::Telemetry;
use crate::telemetry::now_ms;
use crate::telemetry::series::Point;

impl Telemetry {
    /// A peer of another process has given its status.
    pub fn observe(&self, peer: &str, status: PeerStatus) {
        let activity = &status.activity;
        let point = activity.path.zip(activity.step).zip(activity.loss).map(|((path, step), loss)| {
            let point = Point {
                at_ms: now_ms(),
                step: activity.phase.unwrap_or(0) * 1_000 + step,
                loss,
                tokens_per_s: activity.tokens_per_s.unwrap_or(0.0),
                ..Point::default()
            };
            (format!("path/{path}"), point)
        });
        self.state().peers.entry(peer.to_owned()).or_default();
        self.answered(peer, status);
        if let Some((name, point)) = point {
            let newest = self.state().series.get(&name).and_then(|series| Some(series.points().last()?.step));
            if newest != Some(point.step) {
                self.point(&name, point);
            }
        }
    }
}
