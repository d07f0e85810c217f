//! What a peer has on its disk in the encoding of messages: records of the journal, who was sent away, invitations.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::access::authentication::AccessList;
use pathswarm::access::invitation::InvitationToken;
use pathswarm::protocol::Record;
use pathswarm::protocol::module::chain::Chain;
use pathswarm_fuzz::says_again;

fuzz_target!(|bytes: &[u8]| {
    says_again::<AccessList>(bytes);
    says_again::<InvitationToken>(bytes);
    if let Some(Record::Installed { updates, .. }) = says_again(bytes) {
        let _ = Chain::of(updates);
    }
});
