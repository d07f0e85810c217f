//! Where statuses come from: the control sockets of a folder's peers, asked once a second.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::swarm::status::{ask, find_peers};
use crate::telemetry::Telemetry;

const DEPTH: usize = 4;

/// Asks the peers of a folder, until it is dropped with its runtime.
pub async fn follow(telemetry: Telemetry, folder: PathBuf) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let (mut peers, mut stopped) = (Vec::new(), Vec::new());
        find_peers(&folder, DEPTH, &mut peers, &mut stopped);
        for peer in peers {
            if let Ok((status, _)) = ask(&peer).await {
                telemetry.observe(&label(&folder, &peer), status);
            }
        }
    }
}

fn label(folder: &Path, peer: &Path) -> String {
    let inner = peer.strip_prefix(folder).ok().filter(|inner| !inner.as_os_str().is_empty());
    inner.or_else(|| peer.file_name().map(Path::new)).unwrap_or(peer).display().to_string()
}
