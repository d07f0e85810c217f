//! Questions from peer to peer: about the run, about text, and at the door.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::names::{PeerKey, RunId};
use pathswarm::protocol::Request;
use pathswarm::protocol::admission::Admission;
use pathswarm::protocol::invitations::Knock;
use pathswarm::protocol::questions::Bounds;
use pathswarm_fuzz::says_again;

const NOW_S: u64 = 1_800_000_000;
const FOUNDER: PeerKey = PeerKey([1; 32]);
const BOUNDS: Bounds = Bounds { paths: 4, vocabulary: 300, context: 64, prefix_tokens: 8 };

fuzz_target!(|bytes: &[u8]| {
    if let Some(Request::Play(question)) = says_again(bytes) {
        let _ = BOUNDS.check(&question);
    }
    if let Some(Knock::Present(pass)) = says_again(bytes) {
        let mut admission = Admission::new(RunId([0; 32]), FOUNDER, |_, _, _| true);
        let peer = pass.holder(FOUNDER);
        if admission.present(peer, pass, NOW_S).is_ok() {
            assert!(admission.rank(peer, NOW_S).is_some());
        }
    }
});
