//! The system's DNS servers. A machine without any still reaches peers by their IP addresses.

use libp2p::dns::{ResolverConfig, ResolverOpts};

/// The system's resolver; without one, a resolver that knows no server and finds no name.
pub fn system() -> (ResolverConfig, ResolverOpts) {
    let read = hickory_resolver::system_conf::read_system_conf();
    let none = |_| (ResolverConfig::from_parts(None, Vec::new(), Vec::new()), ResolverOpts::default());
    let (servers, options) = read.unwrap_or_else(none);
    if servers.name_servers().is_empty() {
        tracing::warn!("the system names no DNS server: only addresses without names are reached");
    }
    (servers, options)
}
