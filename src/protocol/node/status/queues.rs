//! The tables of a node that other peers can make grow.

use crate::protocol::limits::{
    MAX_ASKED, MAX_ASKING, MAX_AUDITS, MAX_CONTRIBUTIONS, MAX_COPIED, MAX_DIRECTORY, MAX_FETCHING, MAX_INVALIDATED,
    MAX_LEASES, MAX_MEMBERS, MAX_NEWCOMERS, MAX_OFFERS_OF_MANY, MAX_REFUSED, MAX_REPLICAS, MAX_REPROPOSED, MAX_SCORES,
    MAX_UNAWAITED, MAX_UNREAD, STATES_KEPT, VERSIONS_KEPT,
};
use crate::protocol::status::queues::Queue;
use crate::protocol::{Node, Replica};

/// The most blobs that are being fetched for one module: those of a collection, an average or a state, and what the
/// previous collection still waited for when it closed. A running audit needs its contributions and an average.
const FETCHING_PER_MODULE: usize = 2 * (MAX_FETCHING + MAX_UNAWAITED) + 2;

impl Node {
    /// The current length of each table.
    pub fn queues(&self) -> [Queue; 27] {
        let [audits, proven, invalidated] = self.reputation.audits().counts();
        let longest = |length: fn(&Replica) -> usize| self.modules.values().map(length).max().unwrap_or(0);
        let versions = VERSIONS_KEPT as usize;
        let beyond = |(module, state): (&crate::names::ModuleId, &Replica)| {
            state.offers.len().saturating_sub(self.plan.most_offers(*module))
        };
        let offers_beyond = self.modules.iter().map(beyond).sum();
        let queue = |name, length, limit| Queue { name, length, limit };
        [
            queue("offers of a module", longest(|module| module.offers.len()), MAX_OFFERS_OF_MANY),
            queue("offers of any module beyond its share", offers_beyond, 0),
            queue("updates refused", longest(|module| module.applying.counts()[0]), MAX_REFUSED),
            queue("updates to replay", longest(|module| module.applying.counts()[1]), versions),
            queue("updates being applied", longest(|module| module.applying.counts()[2]), versions),
            queue("states of a module", longest(|module| module.history.states().len()), STATES_KEPT),
            queue(
                "updates kept",
                longest(|module| module.history.chain().map_or(0, |chain| chain.recent().count())),
                versions,
            ),
            queue(
                "contributions in hand",
                longest(|module| module.aggregation.collected().count()),
                MAX_CONTRIBUTIONS + MAX_UNAWAITED,
            ),
            queue("paths held", self.paths.held().len(), MAX_LEASES),
            queue("peers known", self.membership.roster().peers(), MAX_MEMBERS),
            queue("peers that wait to be known", self.membership.roster().newcomers(), MAX_NEWCOMERS),
            queue("copied identities", self.membership.copies().len(), MAX_COPIED),
            queue("failed owners", self.reputation.failed_owners(), MAX_MEMBERS),
            queue("peers scored", self.reputation.scores().count(), MAX_MEMBERS),
            queue("audits that wait", audits, MAX_AUDITS),
            queue("proofs told of", proven, MAX_AUDITS),
            queue("updates invalidated", invalidated, MAX_INVALIDATED),
            queue("holders not contributing", self.reputation.not_contributing(), 4 * MAX_MEMBERS),
            queue("peers not fetched from", self.reputation.unfetchable(), MAX_MEMBERS),
            queue("modules replicated", self.replicas.held().len(), MAX_REPLICAS),
            queue("scores kept", self.evaluations.scores().len(), MAX_SCORES),
            queue("contributions reproposed", self.contributions.reproposed(), MAX_REPROPOSED),
            queue("peers found by a search", self.search.found().len(), MAX_ASKED * MAX_DIRECTORY),
            queue("requests measured", self.membership.response_times().requests_under_way(), MAX_ASKING),
            queue("peers not heard about amendments", self.lifecycle.amendments().passed_over(), MAX_MEMBERS),
            queue("updates without their lists", self.blobs.lists().len(), MAX_UNREAD),
            queue(
                "blobs on their way",
                self.blobs.being_fetched().len(),
                FETCHING_PER_MODULE * self.modules.len().max(1) + MAX_FETCHING + MAX_UNREAD * VERSIONS_KEPT as usize,
            ),
        ]
    }
}
