//! An HTTP server before a run, with the API of OpenAI, for programs that know that.
//!
//! [`request`] reads what clients send, and refuses what it does not do in words. `text/chat` turns a conversation into
//! text. [`engine`] is a thread that generates for all clients by turns, on a collected run, on one model, or by asking a
//! swarm. [`response`] has the forms of answers. [`routes`] joins them; `http` carries them. [`openapi`] describes all of
//! it for programs.

pub mod engine;
pub mod limits;
pub mod openapi;
pub mod request;
pub mod response;
pub mod routes;
pub mod served_run;

pub use engine::Engine;
pub use limits::ServeLimits;
pub use routes::{App, router};
pub use served_run::{ServedRun, Source};
