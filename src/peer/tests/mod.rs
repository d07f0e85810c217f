//! Test support for this module: a run small enough to create in a test.

pub mod tiny_run;
