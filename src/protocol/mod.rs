//! The protocol's core: what a peer does when something happens, and nothing else.
//!
//! `Node::handle(now, event)` returns the actions to carry out. It reads no clock, draws no random number and touches
//! no tensor, file or socket. It iterates only over ordered collections. The same events at the same times therefore
//! give the same actions. The driver (`peer/`) and the simulator (`simulator/`) run this same code.
//!
//! A tour: an [`event`] comes in, an [`action`] goes out. [`plan`] describes the run, [`wire`] the messages. A node is
//! made of parts with private state: `membership` (which peers are alive), `reputation` (peer scores and fraud proofs),
//! `module` (chains of updates and collections), `path` (paths held here and their training), `blobs` (fetch and
//! release), `lifecycle` and `outbox`. `node` joins them: `node/module` elects an owner, aggregates contributions,
//! applies updates, audits, rolls back and catches up; `node/path` places paths, trains phases and hands paths off.
//! [`journal`] survives a kill, [`status`] is shown to users, and [`limits`] bounds every table.

pub mod action;
mod amendments;
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
