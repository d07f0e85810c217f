//! The stream of frames, as server-sent events: first the whole state, then what changes.
//!
//! A viewer that does not read is behind by at most the frames of the channel. It then loses them, and gets the whole state
//! when it reads again. No sender waits for it.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::console::Shared;
use crate::telemetry::Telemetry;

/// One viewer.
struct Viewer {
    telemetry: Telemetry,
    /// Before anything else.
    whole: Option<Arc<str>>,
    frames: Receiver<Arc<str>>,
    _place: OwnedSemaphorePermit,
}

impl Viewer {
    async fn next(&mut self) -> Option<Arc<str>> {
        if let Some(whole) = self.whole.take() {
            return Some(whole);
        }
        match self.frames.recv().await {
            Ok(frame) => Some(frame),
            Err(RecvError::Lagged(_)) => {
                let again = self.telemetry.subscribe();
                self.frames = again.frames;
                Some(again.whole)
            }
            Err(RecvError::Closed) => None,
        }
    }
}

pub(super) async fn stream(State(shared): State<Shared>) -> Response {
    let Ok(place) = shared.viewers.clone().try_acquire_owned() else {
        let most = crate::console::MOST_VIEWERS;
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{most} viewers follow already")).into_response();
    };
    let subscription = shared.telemetry.subscribe();
    let viewer = Viewer {
        telemetry: shared.telemetry,
        whole: Some(subscription.whole),
        frames: subscription.frames,
        _place: place,
    };
    let frames = stream::unfold(viewer, async |mut viewer| {
        let frame = viewer.next().await?;
        Some((Ok::<_, Infallible>(Event::default().data(&*frame)), viewer))
    });
    Sse::new(frames).keep_alive(KeepAlive::default()).into_response()
}
