//! Analyses of directional routing: the effect of switching it off or changing it, part by part ([`effects`], of
//! [`interventions`]); the contribution of each part to a token's logit ([`attribution`]); whether repeated text is
//! continued ([`induction`]); weights by position and domain ([`distribution`], [`domains`]); the meaning of directions
//! ([`vocabulary`]); and the difference of two checkpoints ([`similarity`]).

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
