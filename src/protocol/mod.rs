//! The protocol's core: what a peer does when something happens, and nothing else.
//!
//! `Node::handle(now, event)` returns what to do. It reads no clock, rolls no dice, touches no tensor, file or socket,
//! and iterates only over ordered collections, so the same events at the same times give the same actions. The driver
//! (`peer/`) and the simulator (`simulator/`) run this same code.
//!
//! The tour: [`event`] comes in, [`action`] goes out. [`plan`] is what a run is; [`wire`] what peers say to each other. A node is made
//! of parts with private state: `membership` (who is there), `reputation` (what is held against a peer), `module` (chains of updates
//! and collections), `path` (paths held here and what was trained of them), `blobs` (fetched and released), `lifecycle` and `outbox`.
//! `node` joins them: `node/module` elects an owner, aggregates contributions, applies updates, audits, rolls back and catches up;
//! `node/path` places paths, trains phases and hands paths over. [`journal`] is what survives a kill, [`status`] what is shown, and
//! [`limits`] bounds every table.

pub mod action;
mod blobs;
pub mod event;
pub mod journal;
mod lifecycle;
pub mod limits;
pub mod membership;
pub mod module;
mod node;
mod outbox;
mod path;
mod plan;
pub mod reputation;
pub mod status;
pub mod timers;
pub mod wire;

pub use crate::protocol::journal::record::Record;
pub use crate::protocol::module::validate::check_chain;
pub use crate::protocol::status::queues::Queue;
pub use crate::protocol::wire::message::{Message, Request, Response, SignedUpdate, Update};
pub use action::{Action, Outer, Part, Portion, Report, Resume};
pub use event::{Contact, Event, ReplyToken, RequestId};
pub use node::Node;
pub use plan::RunPlan;

use node::{Replica, phase_from};
use path::Held;
