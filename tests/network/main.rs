//! The network's promises, kept between real peers on loopback.
#![cfg(all(feature = "learning", feature = "network"))]

mod admission;
mod blobs;
mod control;
mod dialling;
mod gossip;
mod hostile;
mod identification;
mod peers;
mod places;
mod providers;
mod regards;
mod relays;
mod rude;
mod unmannered;
