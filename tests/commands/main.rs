//! The program's commands, each as its users run it.

mod compatibility;
mod config;
mod console;
mod corpus;
mod doctor;
mod experiment;
mod images;
mod inspect;
mod mistakes;
mod prepare;
mod pretrained;
mod readme;
mod relay;
mod report;
#[path = "../support/run.rs"]
mod run;
mod signals;
#[path = "../support/text.rs"]
mod text;
