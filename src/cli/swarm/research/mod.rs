//! The commands for research: experiments, inspection, prepared data.

pub(super) mod experiment;
pub(super) mod inspect;
pub(super) mod prepare;
pub(super) mod report;
pub(super) mod transducer;
