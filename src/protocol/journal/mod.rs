//! The journal: what must survive a kill.

pub mod record;
