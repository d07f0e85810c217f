//! The tools for directional routing: what happens if routing is switched off or changed, part by part ([`effects`], of
//! [`interventions`]); what each part says for a token ([`attribution`]); whether repeated text is continued
//! ([`induction`]); where and for which domains weights differ ([`distribution`], [`domains`]); what directions mean
//! ([`vocabulary`]); and how two checkpoints differ ([`similarity`]).

pub mod attribution;
pub mod capture;
pub mod distribution;
pub mod domains;
pub mod effects;
pub mod induction;
pub mod interventions;
pub mod similarity;
#[cfg(test)]
mod tests;
pub mod vocabulary;
