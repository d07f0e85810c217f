//! Questions from peer to peer: about the run, about text, and at the door.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::access::admission::Admission;
use pathswarm::access::authentication::AuthenticationRequest;
use pathswarm::names::{PeerKey, RunId};
use pathswarm::protocol::Request;
use pathswarm::query::QueryLimits;
use pathswarm_fuzz::says_again;

const NOW_S: u64 = 1_800_000_000;
const CREATOR: PeerKey = PeerKey([1; 32]);
const BOUNDS: QueryLimits = QueryLimits { paths: 4, vocabulary: 300, context: 64, prefix_tokens: 8 };

fuzz_target!(|bytes: &[u8]| {
    if let Some(Request::Query(question)) = says_again(bytes) {
        let _ = BOUNDS.check(&question);
    }
    if let Some(AuthenticationRequest::Present(credential)) = says_again(bytes) {
        let mut admission = Admission::new(RunId([0; 32]), CREATOR, |_, _, _| true);
        let peer = credential.holder(CREATOR);
        if admission.present(peer, credential, NOW_S).is_ok() {
            assert!(admission.rank(peer, NOW_S).is_some());
        }
    }
});
