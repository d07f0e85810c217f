//! Answers: chains that another peer sends, what it has read, and what is said at the door.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pathswarm::access::authentication::AuthenticationResponse;
use pathswarm::protocol::module::chain::{Chain, Since};
use pathswarm::protocol::{Response, RunPlan, check_chain};
use pathswarm::query::{QueriedModel, Query, QueryLimits, TokenSpan};
use pathswarm_fuzz::{GENESIS, Kind, says_again};

const BOUNDS: QueryLimits = QueryLimits { paths: 4, vocabulary: 300, context: 64, prefix_tokens: 8 };
static PLANS: LazyLock<[RunPlan; 4]> = LazyLock::new(|| Kind::ALL.map(Kind::plan));

fuzz_target!(|bytes: &[u8]| {
    says_again::<AuthenticationResponse>(bytes);
    match says_again(bytes) {
        Some(Response::Snapshot(updates)) => {
            let own = Chain::genesis(GENESIS);
            let Some(chain) = Chain::of(updates) else { return };
            let (version, update) = (chain.head().version, chain.head().update);
            assert_eq!(chain.since(version, update), Since::Updates(Vec::new()));
            assert!(Chain::of(chain.updates()).is_some());
            // Nothing else is asked of a chain that was not checked.
            if PLANS.iter().any(|plan| check_chain(plan, own.head(), &chain).is_ok()) {
                let _ = chain.staleness();
            }
        }
        Some(Response::QueryResult(played)) => {
            let piece = TokenSpan { tokens: vec![1, 2], from: 1 };
            let questions =
                [Query::Route(vec![vec![1]; 2]), Query::Score(QueriedModel::Ancestor, vec![piece.clone(), piece])];
            let _ = questions.iter().map(|question| BOUNDS.check_result(question, &played)).collect::<Vec<_>>();
        }
        _ => {}
    }
});
