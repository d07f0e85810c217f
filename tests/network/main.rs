//! The network's promises, kept between real peers on loopback.
#![cfg(feature = "network")]

mod blobs;
mod control;
mod copies;
mod dialling;
mod gossip;
mod peers;
mod providers;
mod relays;
