//! Server-sent events. When the client hangs up, the stream is dropped, and with it the receiver of the engine's events,
//! so that the engine ends the text.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event as SentEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc;

use crate::serve::engine::job::Event;
use crate::serve::request::ApiError;
use crate::serve::response::pieces::Pieces;

/// Time without an event after which a comment is sent, so that nobody on the way closes the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A streamed answer, its events, and what is ready to be sent.
struct Sending {
    pieces: Pieces,
    events: mpsc::Receiver<Event>,
    ready: VecDeque<String>,
    ended: bool,
}

/// The response that sends pieces as they come.
pub fn respond(pieces: Pieces, events: mpsc::Receiver<Event>) -> Response {
    let sending = Sending { pieces, events, ready: VecDeque::new(), ended: false };
    let stream = futures::stream::unfold(sending, |mut sending| async move {
        let data = sending.next().await?;
        Some((Ok::<_, Infallible>(SentEvent::default().data(data)), sending))
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

impl Sending {
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return Some(data);
            }
            if self.ended {
                return None;
            }
            match self.events.recv().await {
                Some(event) => match self.pieces.of(event) {
                    Ok(values) => self.ready.extend(values.iter().map(ToString::to_string)),
                    Err(error) => self.fail(&error),
                },
                None if self.pieces.is_complete() => {
                    self.ready.extend(self.pieces.last().map(|value| value.to_string()));
                    self.ready.push_back("[DONE]".to_owned());
                    self.ended = true;
                }
                None => {
                    self.fail(&ApiError::plain(503, "unavailable", "this server is stopping; ask again when it runs"))
                }
            }
        }
    }

    fn fail(&mut self, error: &ApiError) {
        self.ready.push_back(error.body().to_string());
        self.ended = true;
    }
}
