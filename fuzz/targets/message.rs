//! Messages and notices on a module's topic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::names::{PeerKey, RunId};
use pathswarm::protocol::admission::Admission;
use pathswarm::protocol::invitations::Notice;
use pathswarm::protocol::{Message, Update};
use pathswarm_fuzz::says_again;

const NOW_S: u64 = 1_800_000_000;
const FOUNDER: PeerKey = PeerKey([1; 32]);

fuzz_target!(|bytes: &[u8]| {
    says_again::<Message>(bytes);
    says_again::<Update>(bytes);
    // As if everybody had signed everything.
    let mut admission = Admission::new(RunId([0; 32]), FOUNDER, |_, _, _| true);
    match says_again::<Notice>(bytes) {
        Some(Notice::Present { pass, .. }) => {
            let _ = admission.present(pass.holder(FOUNDER), pass, NOW_S);
        }
        Some(Notice::Revoked(revocation)) => {
            let (pass, of) = (revocation.pass.clone(), revocation.of);
            if admission.revoke(revocation).is_ok() {
                let _ = admission.check(&pass, NOW_S);
                assert_eq!(admission.rank(of, NOW_S), None);
            }
        }
        None => {}
    }
});
