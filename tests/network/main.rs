//! The network's promises, kept between real peers on loopback.
#![cfg(all(feature = "learning", feature = "network"))]

mod blobs;
mod control;
mod copies;
mod dialling;
mod gossip;
mod hostile;
mod peers;
mod providers;
mod relays;
mod rude;
mod unmannered;
