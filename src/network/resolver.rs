//! The system's DNS servers. A machine without any still reaches peers by their IP addresses.

use libp2p::dns::{ResolverConfig, ResolverOpts};

/// The system's resolver; without one, a resolver that knows no server and finds no name.
pub fn system() -> (ResolverConfig, ResolverOpts) {
    hickory_resolver::system_conf::read_system_conf().unwrap_or_else(|error| {
        tracing::warn!(%error, "the system names no DNS server: only addresses without names are reached");
        (ResolverConfig::from_parts(None, Vec::new(), Vec::new()), ResolverOpts::default())
    })
}
