//! Tests of admission. Signatures are simulated: a hash of the signer's key and the signed bytes.

use super::admission::{Admission, Refusal};
use super::authentication::{
    AccessList, AccessNotice, AuthenticationRequest, AuthenticationResponse, RedeemedInvitation,
};
use super::invitation::{
    Credential, Grant, Invitation, InvitationToken, MEMBER, NO_EXPIRY_S, OneTimeInvitation, Revocation, VISITOR,
};
use crate::access::limits::{
    CLOCKS_DIFFER_S, CREATOR_RANK, MAX_ADMITTED_BY_ONE, MAX_CREATORS_REVOCATIONS, MAX_INVITED_BY_ONE, MAX_REDEEMED,
    MAX_REVOCATIONS, MAX_REVOCATIONS_OF_ONE, MAX_VISITORS_OF_ONE,
};
use crate::names::{PeerKey, RunId};
use crate::protocol::limits::MAX_CONTROL_BYTES;
use crate::protocol::wire::encoding::{decode, encode};

const RUN: RunId = RunId([7; 32]);
const CREATOR: PeerKey = PeerKey([1; 32]);
const ANN: PeerKey = PeerKey([2; 32]);
const BOB: PeerKey = PeerKey([3; 32]);
const EVE: PeerKey = PeerKey([4; 32]);
/// Now, and the default time of issue.
const NOW: u64 = 1_000_000;

fn signature(by: PeerKey, bytes: &[u8]) -> Vec<u8> {
    let hash = blake3::hash(&[by.0.as_slice(), bytes].concat());
    [hash.as_bytes().as_slice(), &[0; 32]].concat()
}

fn verify(by: PeerKey, bytes: &[u8], signed: &[u8]) -> bool {
    signature(by, bytes) == signed
}

fn admission() -> Admission {
    Admission::new(RUN, CREATOR, verify)
}

fn key(number: usize) -> PeerKey {
    PeerKey(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

/// `credential` and one more invitation, by its holder.
fn handed_on(credential: &Credential, to: PeerKey, rank: u8, issued_s: u64, until_s: u64) -> Credential {
    let by = credential.holder(CREATOR);
    let mut next = Invitation { to, rank, issued_s, until_s, signature: Vec::new() };
    next.signature = signature(by, &next.signed_bytes(RUN, by));
    credential.and(next)
}

fn invited(credential: &Credential, to: PeerKey, rank: u8) -> Credential {
    handed_on(credential, to, rank, NOW, NO_EXPIRY_S)
}

fn revoked(credential: &Credential, of: PeerKey, at_s: u64) -> Revocation {
    let by = credential.holder(CREATOR);
    let mut revocation = Revocation { credential: credential.clone(), of, at_s, signature: Vec::new() };
    revocation.signature = signature(by, &revocation.signed_bytes(RUN, by));
    revocation
}

#[test]
fn a_peer_that_may_invite_does_so_without_the_creator() {
    let mut book = admission();
    let ann = invited(&Credential::default(), ANN, MEMBER + 1);
    let bob = invited(&ann, BOB, MEMBER);
    assert_eq!(book.rank(BOB, NOW), None);
    // Ann is unknown here.
    assert_eq!(book.present(BOB, bob.clone(), NOW), Ok(true));
    assert_eq!(book.present(BOB, bob.clone(), NOW), Ok(false), "not new");
    assert_eq!((book.rank(BOB, NOW), book.rank(ANN, NOW)), (Some(MEMBER), None));
    assert_eq!(book.rank(CREATOR, NOW), Some(CREATOR_RANK));
    assert_eq!(book.present(EVE, invited(&bob, EVE, MEMBER), NOW), Err(Refusal::NoRight(BOB)));
    assert_eq!(book.present(EVE, invited(&bob, EVE, VISITOR), NOW), Ok(true), "every member may invite a visitor");
    let of_a_visitor = invited(&invited(&bob, EVE, VISITOR), key(1), VISITOR);
    assert_eq!(book.present(key(1), of_a_visitor, NOW), Err(Refusal::NoRight(EVE)));
}

#[test]
fn a_forged_credential_is_refused() {
    let mut book = admission();
    let ann = invited(&Credential::default(), ANN, MEMBER + 1);
    assert_eq!(book.present(EVE, Credential::default(), NOW), Err(Refusal::None));
    assert_eq!(book.present(EVE, ann.clone(), NOW), Err(Refusal::NotYours(ANN)), "of another peer");
    let mut raised = ann.clone();
    raised.0[0].rank = CREATOR_RANK - 1;
    assert_eq!(book.present(ANN, raised, NOW), Err(Refusal::NotSigned(CREATOR)));
    let too_high = invited(&Credential::default(), ANN, CREATOR_RANK);
    assert_eq!(book.present(ANN, too_high, NOW), Err(Refusal::NoRight(CREATOR)));
    let mut stolen = ann.clone();
    stolen.0.push(Invitation { to: EVE, signature: vec![0; 64], ..invited(&ann, BOB, MEMBER).0[1].clone() });
    assert_eq!(book.present(EVE, stolen, NOW), Err(Refusal::NotSigned(ANN)));
    let mut of_another_run = Admission::new(RunId([8; 32]), CREATOR, verify);
    assert_eq!(of_another_run.present(ANN, ann.clone(), NOW), Err(Refusal::NotSigned(CREATOR)));
    let circle = invited(&invited(&invited(&Credential::default(), ANN, 4), BOB, 3), ANN, 2);
    assert_eq!(book.present(ANN, circle, NOW), Err(Refusal::Circle));
    let through_the_creator = invited(&invited(&ann, CREATOR, MEMBER), EVE, VISITOR);
    assert_eq!(book.present(EVE, through_the_creator, NOW), Err(Refusal::Circle));
    // However long it is, the first rank that does not fall ends the check.
    let endless = Credential(vec![ann.0[0].clone(); 2_000]);
    assert_eq!(book.present(ANN, endless, NOW), Err(Refusal::NoRight(ANN)));
    assert_eq!(book.known(), 0);
}

#[test]
fn an_invitation_expires_in_the_second_that_it_names_with_all_invitations_below_it() {
    let mut book = admission();
    let ann = handed_on(&Credential::default(), ANN, MEMBER + 1, NOW, NOW + 10);
    book.present(ANN, ann.clone(), NOW).unwrap();
    book.present(BOB, invited(&ann, BOB, MEMBER), NOW).unwrap();
    assert_eq!((book.rank(ANN, NOW + 9), book.rank(BOB, NOW + 9)), (Some(MEMBER + 1), Some(MEMBER)));
    assert_eq!((book.rank(ANN, NOW + 10), book.rank(BOB, NOW + 10)), (None, None));
    assert_eq!(book.present(ANN, ann, NOW + 10), Err(Refusal::Ended), "even if it is known");
    let early = handed_on(&Credential::default(), EVE, MEMBER, NOW + CLOCKS_DIFFER_S + 1, NO_EXPIRY_S);
    assert_eq!(book.present(EVE, early.clone(), NOW), Err(Refusal::TooEarly(CLOCKS_DIFFER_S + 1)));
    assert_eq!(book.present(EVE, early, NOW + 1), Ok(true));
}

#[test]
fn a_revoked_peer_is_excluded_with_all_that_it_invited_and_may_be_invited_again() {
    let mut book = admission();
    let ann = invited(&Credential::default(), ANN, 4);
    let bob = invited(&ann, BOB, 3);
    for (peer, credential) in [(ANN, ann.clone()), (BOB, bob.clone()), (EVE, invited(&bob, EVE, MEMBER))] {
        book.present(peer, credential, NOW).unwrap();
    }
    assert_eq!(book.revoke(revoked(&ann, BOB, NOW + 5)), Ok(true));
    assert_eq!(book.revoke(revoked(&ann, BOB, NOW + 5)), Ok(false), "not new");
    assert_eq!(book.revoke(revoked(&ann, BOB, NOW)), Ok(false), "the later one applies");
    let ranks = [ANN, BOB, EVE].map(|peer| book.rank(peer, NOW + 6));
    assert_eq!(ranks, [Some(4), None, None]);
    assert_eq!(book.present(BOB, bob, NOW + 6), Err(Refusal::Revoked(ANN)), "the old credential stays void");
    let again = handed_on(&ann, BOB, MEMBER, NOW + 6, NO_EXPIRY_S);
    assert_eq!(book.present(BOB, again, NOW + 6), Ok(true));
    // Another peer's revocation still counts, and the creator's overrides all.
    let carol = invited(&Credential::default(), key(1), 4);
    let through_carol = invited(&carol, EVE, MEMBER);
    assert_eq!(book.present(EVE, through_carol, NOW + 6), Ok(true));
    assert_eq!(book.revoke(revoked(&Credential::default(), EVE, NOW + 7)), Ok(true));
    assert_eq!(book.rank(EVE, NOW + 8), None);
}

#[test]
fn no_peer_can_revoke_a_peer_that_it_did_not_invite() {
    let mut book = admission();
    let ann = invited(&Credential::default(), ANN, 3);
    let bob = invited(&ann, BOB, MEMBER + 1);
    book.present(ANN, ann.clone(), NOW).unwrap();
    book.present(BOB, bob.clone(), NOW).unwrap();
    assert_eq!(book.revoke(revoked(&bob, ANN, NOW)), Err(Refusal::NoRight(BOB)), "of a peer above");
    assert_eq!(book.revoke(revoked(&bob, CREATOR, NOW)), Err(Refusal::NoRight(BOB)));
    // An unknown peer: its revocation is stored, since it may have invited peers, but has no effect.
    let carol = invited(&Credential::default(), key(1), 4);
    assert_eq!(book.revoke(revoked(&carol, BOB, NOW)), Ok(true));
    assert_eq!(book.rank(BOB, NOW), Some(MEMBER + 1));
    let mut forged = revoked(&Credential::default(), BOB, NOW);
    forged.signature[0] ^= 1;
    assert_eq!(book.revoke(forged), Err(Refusal::NotSigned(CREATOR)));
    assert_eq!(book.rank(BOB, NOW), Some(MEMBER + 1));
}

#[test]
fn members_that_heard_the_same_agree_in_whatever_order_they_heard_it() {
    let ann = invited(&Credential::default(), ANN, 4);
    let bob = invited(&ann, BOB, 3);
    let said = [
        revoked(&Credential::default(), ANN, NOW + 1),
        revoked(&ann, BOB, NOW + 2),
        revoked(&Credential::default(), ANN, NOW + 3),
        revoked(&ann, BOB, NOW + 9),
    ];
    let credentials = [
        (ANN, handed_on(&Credential::default(), ANN, 4, NOW + 2, NO_EXPIRY_S)),
        (BOB, bob),
        (EVE, invited(&ann, EVE, 1)),
    ];
    let view = |order: &[usize]| {
        let mut book = admission();
        for at in order {
            let _ = match at {
                0..4 => book.revoke(said[*at].clone()),
                _ => book.present(credentials[at - 4].0, credentials[at - 4].1.clone(), NOW + 4),
            };
        }
        (
            credentials.clone().map(|(peer, _)| book.rank(peer, NOW + 10)),
            book.revocations().cloned().collect::<Vec<_>>(),
        )
    };
    let first = view(&[0, 1, 2, 3, 4, 5, 6]);
    for order in [[6, 5, 4, 3, 2, 1, 0], [3, 4, 0, 6, 2, 5, 1], [5, 1, 6, 0, 4, 3, 2]] {
        assert_eq!(view(&order), first);
    }
    assert_eq!(first.0, [None, None, None]);
}

#[test]
fn a_peer_that_invites_without_end_displaces_no_other() {
    let mut book = admission();
    let ann = invited(&Credential::default(), ANN, 4);
    let mut refused = 0;
    for number in 0..MAX_INVITED_BY_ONE + 9 {
        refused += usize::from(book.present(key(number), invited(&ann, key(number), MEMBER), NOW).is_err());
    }
    assert_eq!((book.known(), refused), (MAX_INVITED_BY_ONE, 9));
    // Nor with helpers.
    for helper in 10_000..10_100 {
        let below = invited(&ann, key(helper), 3);
        for number in 0..20 {
            let guest = key(helper * 100 + number);
            let _ = book.present(guest, invited(&below, guest, MEMBER), NOW);
        }
    }
    assert_eq!(book.known(), MAX_ADMITTED_BY_ONE);
    assert_eq!(book.present(BOB, invited(&Credential::default(), BOB, MEMBER), NOW), Ok(true));
    // A known peer keeps its place when it presents another credential.
    assert_eq!(book.present(key(0), handed_on(&ann, key(0), MEMBER, NOW + 1, NO_EXPIRY_S), NOW), Ok(true));
    assert_eq!(book.revoke(revoked(&Credential::default(), ANN, NOW)), Ok(true));
    let again = handed_on(&Credential::default(), ANN, 4, NOW + 1, NO_EXPIRY_S);
    assert_eq!(book.present(EVE, handed_on(&again, EVE, MEMBER, NOW + 1, NO_EXPIRY_S), NOW + 1), Ok(true));
    assert_eq!(book.known(), 2, "void credentials are removed");
}

#[test]
fn visitors_give_way_to_later_ones_of_the_same_peer() {
    let mut book = admission();
    let ann = invited(&Credential::default(), ANN, MEMBER);
    for number in 0..MAX_VISITORS_OF_ONE + 3 {
        let visitor = handed_on(&ann, key(number), VISITOR, NOW, NOW + 100 + number as u64);
        assert_eq!(book.present(key(number), visitor, NOW), Ok(true));
    }
    assert_eq!(book.known(), MAX_VISITORS_OF_ONE);
    assert_eq!((book.rank(key(2), NOW), book.rank(key(3), NOW)), (None, Some(VISITOR)));
}

#[test]
fn a_revocation_stays_however_many_a_byzantine_peer_signs() {
    let mut book = admission();
    assert_eq!(book.revoke(revoked(&Credential::default(), BOB, NOW)), Ok(true));
    let ann = invited(&Credential::default(), ANN, 4);
    let mut taken = 0;
    for number in 0..MAX_REVOCATIONS_OF_ONE + 9 {
        taken += usize::from(book.revoke(revoked(&ann, key(number), NOW)) == Ok(true));
    }
    assert_eq!(taken, MAX_REVOCATIONS_OF_ONE);
    assert_eq!(book.present(BOB, invited(&Credential::default(), BOB, MEMBER), NOW), Err(Refusal::Revoked(CREATOR)));
    assert_eq!(book.revoke(revoked(&Credential::default(), EVE, NOW)), Ok(true));
}

#[test]
fn all_revocations_fit_in_one_response_and_in_one_file() {
    let longest = [4, 3, 2, 1]
        .into_iter()
        .fold(Credential::default(), |credential, rank| invited(&credential, key(rank.into()), rank));
    let by = |credential: &Credential, count| {
        (0..count).map(|number| revoked(credential, key(number), NOW)).collect::<Vec<_>>()
    };
    let revocations = [by(&Credential::default(), MAX_CREATORS_REVOCATIONS), by(&longest, MAX_REVOCATIONS)].concat();
    let credential = invited(&longest, EVE, VISITOR);
    let welcome =
        AuthenticationResponse::Accepted { credential: Some(credential.clone()), revocations: revocations.clone() };
    assert!(encode(&welcome).unwrap().len() < MAX_CONTROL_BYTES);
    let used = vec![RedeemedInvitation { secret: [1; 16], by: Some(EVE), at_s: NOW, use_until_s: NOW }; MAX_REDEEMED];
    assert!(
        encode(&AccessList { redeemed: used, revocations: revocations.clone() }).unwrap().len() < MAX_CONTROL_BYTES
    );
    assert!(encode(&AccessNotice::Revoked(revocations.last().unwrap().clone())).is_ok());
    assert!(encode(&AccessNotice::Present { credential: credential.clone(), sequence: 1 }).is_ok());
    let addresses = vec!["x".repeat(224); 8];
    assert!(encode(&InvitationToken { run: RUN, addresses, grant: Grant::Credential(credential) }).is_ok());
}

#[test]
fn access_messages_have_golden_bytes() {
    let invitation = Invitation { to: ANN, rank: 2, issued_s: 3, until_s: 4, signature: vec![5; 64] };
    let mut link = ANN.0.to_vec();
    link.push(2);
    link.extend([3u64.to_le_bytes(), 4u64.to_le_bytes(), 64u64.to_le_bytes()].concat());
    link.extend([5; 64]);
    let mut golden = b"PSW1\x06\x00\x07\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00".to_vec();
    golden.extend(&link);
    let request = AuthenticationRequest::Present(Credential(vec![invitation]));
    assert_eq!(encode(&request).unwrap(), golden);
    assert_eq!(decode::<AuthenticationRequest>(&golden), Ok(request));
    let one_time =
        OneTimeInvitation { by: ANN, secret: [6; 16], rank: 1, use_until_s: 7, lasts_s: 8, signature: vec![9; 64] };
    let mut golden = b"PSW1\x06\x00\x06\x00".to_vec();
    golden.extend(RUN.0);
    golden.extend([0u64.to_le_bytes().as_slice(), &1u32.to_le_bytes(), &ANN.0, &[6; 16], &[1]].concat());
    golden.extend([7u64.to_le_bytes(), 8u64.to_le_bytes(), 64u64.to_le_bytes()].concat());
    golden.extend([9; 64]);
    let token = InvitationToken { run: RUN, addresses: Vec::new(), grant: Grant::OneTime(one_time) };
    assert_eq!(encode(&token).unwrap(), golden);
    assert_eq!(decode::<InvitationToken>(&golden), Ok(token));
    let mut golden = b"PSW1\x06\x00\x09\x00\x01\x00\x00\x00".to_vec();
    golden.extend([0u64.to_le_bytes().as_slice(), &BOB.0, &3u64.to_le_bytes(), &64u64.to_le_bytes()].concat());
    golden.extend([4; 64]);
    let revoked = Revocation { credential: Credential::default(), of: BOB, at_s: 3, signature: vec![4; 64] };
    assert_eq!(encode(&AccessNotice::Revoked(revoked)).unwrap(), golden);
    let signed = Invitation { to: ANN, rank: 2, issued_s: 3, until_s: 4, signature: Vec::new() }.signed_bytes(RUN, BOB);
    let mut golden = b"pathswarm invitation".to_vec();
    golden.extend([RUN.0, BOB.0, ANN.0].concat());
    golden.push(2);
    golden.extend([3u64.to_le_bytes(), 4u64.to_le_bytes()].concat());
    assert_eq!(signed, golden);
}
