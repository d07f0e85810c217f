//! The protocol's core: what a peer does when something happens, and nothing else.
//!
//! `Node::handle(now, event)` returns what to do. It reads no clock, rolls no dice, touches no tensor, file or socket,
//! and iterates only over ordered collections, so the same events at the same times give the same actions. The driver
//! (`peer/`) and the simulator (`simulator/`) run this same code.
//!
//! The way of an outer step: [`phases`] starts training and offers what was trained; [`gathering`] is the owner's part, from offers
//! to a signed update; [`applying`] takes an update to a new head. [`plan`] is what a run is, [`rounds`] says how far a module has
//! come, [`pace`] how fast its paths are, [`seating`] where a path is whose modules change, [`streaming`] where one is whose levels
//! are brought in step one after the other. [`membership`] beats and hears beats, [`liveness`] measures who is alive, [`ownership`]
//! decides who combines, [`suspicion`] asks owners that fall silent, and [`trust`] who is believed to, [`placement`] decides who
//! trains which path and [`idle`] who only says so, [`transfer`] how a member that is behind catches up, [`starts`] whether two run
//! with one identity, [`replicas`] who else holds a module that one peer alone would have, [`evaluating`] how good a path is.
//! [`lateness`] keeps who is late from holding up others. [`resuming`] goes on with phases that were left in the middle, [`watchdog`]
//! watches over the trainer; [`handover`] gives a path with all that its trainer has to whoever takes it, and [`leaving`] goes in
//! order. [`norm_cap`] says what counts in full, [`conduct`] remembers how peers behave, [`auditing`] counts updates again,
//! and [`going_back`] leaves one that was wrong. [`fetching`] gets blobs,
//! [`keeping`] lets go of them, [`restore`] reads the journal.

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
#[cfg(test)]
mod tests;
pub mod timers;
pub mod wire;

pub use crate::protocol::journal::record::Record;
pub use crate::protocol::module::validate::check_chain;
pub use crate::protocol::status::queues::Queue;
pub use crate::protocol::wire::message::{Message, Request, Response, SignedUpdate, Update};
pub use action::{Action, Outer, Part, Portion, Report, Resume};
pub use event::{Contact, Event, ReplyToken, RequestId};
pub use node::Node;
use node::{Module, phase_from};
use path::Held;
pub use plan::RunPlan;
