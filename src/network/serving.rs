//! Serving blobs to those who ask.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use futures::{AsyncWriteExt, StreamExt};
use libp2p::{PeerId, Stream};
use libp2p_stream::IncomingStreams;
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinSet};

use super::blobs::{
    BlobAccess, PATIENCE, STATUS_BUSY, STATUS_HERE, STATUS_NOT_HERE, blocking, within,
};
use super::limits::{
    BLOB_IDLE, BLOB_PIECE_BYTES, SERVING_WAIT, SERVINGS, SERVINGS_AND_WAITING, SERVINGS_PER_PEER,
};
use super::traffic::Counters;
use crate::names::BlobHash;

/// Takes every stream at once (libp2p-stream drops what is not taken) and serves it in a task of its own.
pub(super) async fn serve_all(mut incoming: IncomingStreams, access: Arc<dyn BlobAccess>, counters: Arc<Counters>) {
    let places = Arc::new(Semaphore::new(SERVINGS));
    let mut servings = Servings::default();
    loop {
        tokio::select! {
            stream = incoming.next() => {
                let Some((peer, stream)) = stream else { return };
                let serving = Serving { access: access.clone(), counters: counters.clone(), places: places.clone() };
                servings.begin(peer, stream, serving);
            }
            Some(ended) = servings.tasks.join_next_with_id() => servings.ended(match ended {
                Ok((id, ())) => id,
                Err(error) => error.id(),
            }),
        }
    }
}

/// The streams being served or waiting for it, and whose they are. Dropped, it ends them all.
#[derive(Default)]
struct Servings {
    tasks: JoinSet<()>,
    peers: HashMap<Id, PeerId>,
}

impl Servings {
    fn begin(&mut self, peer: PeerId, stream: Stream, serving: Serving) {
        if self.tasks.len() >= SERVINGS_AND_WAITING {
            tracing::debug!(%peer, "too many streams for blobs: one dropped");
            return;
        }
        let of_this_peer = self.peers.values().filter(|other| **other == peer).count();
        let task = self.tasks.spawn(async move {
            let served = match of_this_peer {
                0..SERVINGS_PER_PEER => serving.serve(stream).await,
                _ => refuse(stream).await,
            };
            if let Err(error) = served {
                tracing::debug!(%peer, %error, "a blob was not served to its end");
            }
        });
        self.peers.insert(task.id(), peer);
    }

    fn ended(&mut self, task: Id) {
        self.peers.remove(&task);
    }
}

struct Serving {
    access: Arc<dyn BlobAccess>,
    counters: Arc<Counters>,
    places: Arc<Semaphore>,
}

impl Serving {
    async fn serve(self, mut stream: Stream) -> io::Result<()> {
        let mut hash = [0; 32];
        PATIENCE.read(&mut stream, &mut hash).await?;
        let Ok(Ok(_place)) = tokio::time::timeout(SERVING_WAIT, self.places.acquire()).await else {
            return refuse(stream).await;
        };
        let access = self.access.clone();
        match blocking(move || access.open(BlobHash(hash))).await? {
            Some((file, bytes)) => {
                PATIENCE.write(&mut stream, &[STATUS_HERE]).await?;
                PATIENCE.write(&mut stream, &bytes.to_le_bytes()).await?;
                self.send(file, bytes, &mut stream).await?;
            }
            None => PATIENCE.write(&mut stream, &[STATUS_NOT_HERE]).await?,
        }
        within(BLOB_IDLE, stream.close()).await
    }

    async fn send(&self, mut file: File, mut left: u64, stream: &mut Stream) -> io::Result<()> {
        let mut piece = Vec::new();
        while left > 0 {
            let length = left.min(BLOB_PIECE_BYTES as u64);
            (file, piece) = blocking(move || {
                piece.resize(length as usize, 0);
                file.read_exact(&mut piece)?;
                Ok((file, piece))
            })
            .await?;
            PATIENCE.write(stream, &piece).await?;
            self.counters.blobs_sent.add(piece.len());
            left -= length;
        }
        Ok(())
    }
}

async fn refuse(mut stream: Stream) -> io::Result<()> {
    PATIENCE.write(&mut stream, &[STATUS_BUSY]).await?;
    within(BLOB_IDLE, stream.close()).await
}
