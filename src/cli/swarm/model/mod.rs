//! The commands that use a trained model.

pub(super) mod checkpoint;
pub(super) mod collect;
pub(super) mod collected_run;
pub(super) mod evaluate;
pub(super) mod export;
mod export_whole;
mod exported_folder;
pub(super) mod foreign_folder;
pub(super) mod generate;
pub(super) mod import;
pub(super) mod serve;
pub(super) mod source;
