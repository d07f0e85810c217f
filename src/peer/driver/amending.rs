//! Amendments of the run: those of other peers are read, checked and stored before the node goes on by them; the creator's
//! user orders one.

use std::sync::Arc;

use crate::config::admission::Requires;
use crate::names::{BlobRef, RunId};
use crate::peer::driver::Driver;
use crate::peer::driver::events::PeerEvent;
use crate::peer::folder::write_amendment;
use crate::peer::manifest::Manifest;
use crate::protocol::wire::amended::Amended;
use crate::protocol::{Event, Report};

impl Driver {
    fn run_id(&self) -> RunId {
        RunId(*blake3::hash(&self.manifest_bytes).as_bytes())
    }

    /// At the start, tells the program that started the peer of an amendment of before.
    pub(crate) fn tell_amendment(&self) {
        if let Some(Amended { phases, number, .. }) = self.manifest.amendment {
            (self.event_sink)(PeerEvent::Reported(Report::Amended { phases, number }));
        }
    }

    /// Reads what another peer says is an amendment.
    pub(crate) fn read_amendment(&mut self, blob: BlobRef) {
        let bytes = self.blobs.get(blob.hash, blob.bytes).ok().flatten();
        let mut manifest = (*self.manifest).clone();
        let outcome = match &bytes {
            None => Err(false),
            Some(bytes) => match manifest.amend(self.run_id(), bytes) {
                Ok(()) => self.store_amendment(manifest, bytes).ok_or(false),
                Err(error) => {
                    tracing::warn!(%error, "a peer tells of an amendment of the run that is none");
                    Err(true)
                }
            },
        };
        self.events.push_back(match outcome {
            Ok(amended) => Event::Amended(amended),
            Err(is_false) => Event::AmendmentRefused { blob: blob.hash, is_false },
        });
    }

    /// The user amends the run that this peer has created.
    pub(crate) fn amend(&mut self, phases: Option<u64>, requires: Option<Requires>) -> Result<String, String> {
        let run = self.run_id();
        let signed = self.manifest.next_amendment(run, (phases, requires), &self.identity);
        let bytes = signed.map_err(|error| error.to_string())?;
        let mut manifest = (*self.manifest).clone();
        manifest.amend(run, &bytes).map_err(|error| error.to_string())?;
        self.blobs.put(&bytes).map_err(|error| error.to_string())?;
        let in_force = manifest.in_force();
        let stored = self.store_amendment(manifest, &bytes);
        let amended = stored.ok_or("the amendment could not be stored; see the log")?;
        self.events.push_back(Event::Amended(amended));
        Ok(format!("{in_force} (amendment {}); the other peers are told", amended.number))
    }

    /// Stores an amendment of the run, and goes on by it: the trainers from their next phase on.
    fn store_amendment(&mut self, manifest: Manifest, bytes: &[u8]) -> Option<Amended> {
        let amended = manifest.amendment?;
        if let Err(error) = write_amendment(&self.folder, bytes) {
            tracing::error!(error = %format!("{error:#}"), "an amendment of the run is not stored, and does not count yet");
            return None;
        }
        tracing::info!(phases = amended.phases, number = amended.number, "the run was amended by its creator");
        self.manifest = Arc::new(manifest);
        self.devices.amend(amended.phases);
        // What was scored was not the end.
        self.tasks.scored.clear();
        self.tasks.best.clear();
        Some(amended)
    }
}
