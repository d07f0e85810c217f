//! Messages and notices on a module's topic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::access::admission::Admission;
use pathswarm::access::amendment::SignedAmendment;
use pathswarm::access::authentication::AccessNotice;
use pathswarm::names::{PeerKey, RunId};
use pathswarm::protocol::wire::contribution_list::ContributionList;
use pathswarm::protocol::{Message, Update};
use pathswarm_fuzz::says_again;

const NOW_S: u64 = 1_800_000_000;
const CREATOR: PeerKey = PeerKey([1; 32]);

fuzz_target!(|bytes: &[u8]| {
    says_again::<Message>(bytes);
    says_again::<Update>(bytes);
    says_again::<ContributionList>(bytes);
    says_again::<SignedAmendment>(bytes);
    // As if everybody had signed everything.
    let mut admission = Admission::new(RunId([0; 32]), CREATOR, |_, _, _| true);
    match says_again::<AccessNotice>(bytes) {
        Some(AccessNotice::Present { credential, .. }) => {
            let _ = admission.present(credential.holder(CREATOR), credential, NOW_S);
        }
        Some(AccessNotice::Revoked(revocation)) => {
            let (credential, of) = (revocation.credential.clone(), revocation.of);
            if admission.revoke(revocation).is_ok() {
                let _ = admission.check(&credential, NOW_S);
                assert_eq!(admission.rank(of, NOW_S), None);
            }
        }
        None => {}
    }
});
