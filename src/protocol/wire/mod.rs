//! The messages between peers, and their encoding.

pub mod amended;
pub mod contribution_list;
pub mod contributions;
pub mod encoding;
pub mod inner_checkpoint;
pub mod message;
