//! What tests of this room are built from: a run that is small enough to be made in a test.

pub mod tiny_run;
