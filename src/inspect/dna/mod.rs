//! Analysis of networks whose tokens choose their routes through a pool of modules.
//!
//! In data order: [`token_routes`] records which modules every token of a text chose. From that follow [`flow`], the
//! share of tokens in each module by step; [`ranks`], how often each route is taken; [`route_pattern`], the tokens that
//! take a given route; and [`compute`], the compute per token and sequence. [`dreaming`] optimises an image until its
//! patches take given routes. [`plots::routes`](super::plots::routes) draws routes.

pub mod compute;
pub mod dreaming;
pub mod flow;
pub mod ranks;
pub mod route_pattern;
#[cfg(test)]
mod tests;
pub mod token_routes;

pub use compute::{Compute, compute, likeness};
pub use dreaming::{Dreamt, Wish, dream};
pub use flow::{Flow, flow};
pub use ranks::{Ranks, Route, ranks};
pub use route_pattern::RoutePattern;
pub use token_routes::{TokenRoute, TokenRoutes, label};
