//! Tests of access control with real keys and files.

use crate::access::admission::Refusal;
use crate::access::authentication::{AccessNotice, AuthenticationRequest, AuthenticationResponse};
use crate::access::invitation::{Credential, Grant, MEMBER, NO_EXPIRY_S, OneTimeInvitation};
use crate::names::RunId;
use crate::network::{Identity, now_s};
use crate::peer::access::access_control::{AccessChange, AccessControl, AccessError};
use crate::peer::access::access_files::store_credential;
use crate::peer::access::invitation_token;

const RUN: RunId = RunId([5; 32]);

struct House {
    home: tempfile::TempDir,
    creator: Identity,
}

impl House {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), creator: Identity::generate() }
    }

    fn door(&self, name: &str, identity: &Identity) -> AccessControl {
        let folder = self.home.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        AccessControl::open(&folder, identity, (RUN, self.creator.key())).unwrap()
    }

    fn creators(&self) -> AccessControl {
        self.door("creator", &self.creator)
    }
}

fn credential(granted: Result<(RunId, Grant), AccessError>) -> Credential {
    match granted.unwrap() {
        (RUN, Grant::Credential(credential)) => credential,
        other => panic!("{other:?}"),
    }
}

fn once(granted: Result<(RunId, Grant), AccessError>) -> OneTimeInvitation {
    match granted.unwrap() {
        (RUN, Grant::OneTime(one)) => one,
        other => panic!("{other:?}"),
    }
}

fn welcomed(answer: AuthenticationResponse) -> Option<Credential> {
    match answer {
        AuthenticationResponse::Accepted { credential, .. } => credential,
        AuthenticationResponse::NotInvited(reason) => panic!("{reason}"),
    }
}

fn refused(answer: AuthenticationResponse) -> String {
    match answer {
        AuthenticationResponse::NotInvited(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_one_time_invitation_is_whose_it_first_was_whatever_starts_again_meanwhile() {
    let (house, [ann, eve]) = (House::new(), [Identity::generate(), Identity::generate()]);
    let one = once(house.creators().invite_once(invitation_token::secret(), MEMBER, (3_600, NO_EXPIRY_S)));
    let of_ann = welcomed(house.creators().answer(ann.key(), AuthenticationRequest::Redeem(one.clone()))).unwrap();
    // Each time another process, with only its disk.
    let reason = refused(house.creators().answer(eve.key(), AuthenticationRequest::Redeem(one.clone())));
    assert!(reason.starts_with("another peer has used"), "{reason}");
    let again = welcomed(house.creators().answer(ann.key(), AuthenticationRequest::Redeem(one.clone())));
    assert_eq!(again.as_ref(), Some(&of_ann), "she asks again, and gets the same");
    // All other peers only see an invitation for Ann.
    let elsewhere = house.door("elsewhere", &Identity::generate());
    assert!(!elsewhere.admits(ann.key()));
    welcomed(elsewhere.answer(ann.key(), AuthenticationRequest::Present(of_ann.clone())));
    assert!(elsewhere.takes_part(ann.key()) && !elsewhere.admits(eve.key()));
    refused(elsewhere.answer(eve.key(), AuthenticationRequest::Present(of_ann)));
    let reason = refused(elsewhere.answer(eve.key(), AuthenticationRequest::Redeem(one.clone())));
    assert!(reason.contains("redeemed only by the peer that made it"), "{reason}");
    let mut raised = one;
    (raised.rank, raised.secret) = (MEMBER + 1, [1; 16]);
    assert!(refused(house.creators().answer(eve.key(), AuthenticationRequest::Redeem(raised))).contains("not signed"));
}

#[test]
fn an_invitation_that_was_not_used_in_time_or_was_taken_back_lets_nobody_in() {
    let (house, ann) = (House::new(), Identity::generate());
    let late = once(house.creators().invite_once(invitation_token::secret(), MEMBER, (0, NO_EXPIRY_S)));
    assert!(
        refused(house.creators().answer(ann.key(), AuthenticationRequest::Redeem(late))).contains("expired unused")
    );
    let back = once(house.creators().invite_once(invitation_token::secret(), MEMBER, (3_600, NO_EXPIRY_S)));
    assert_eq!(house.creators().take_back(&back).unwrap(), None);
    assert!(refused(house.creators().answer(ann.key(), AuthenticationRequest::Redeem(back))).contains("was revoked"));
    let used = once(house.creators().invite_once(invitation_token::secret(), MEMBER, (3_600, NO_EXPIRY_S)));
    welcomed(house.creators().answer(ann.key(), AuthenticationRequest::Redeem(used.clone())));
    assert_eq!(house.creators().take_back(&used).unwrap().unwrap().of, ann.key());
    assert!(refused(house.creators().answer(ann.key(), AuthenticationRequest::Redeem(used))).contains("was revoked"));
}

#[test]
fn who_was_sent_away_stays_away_after_a_restart_and_wherever_it_is_told() {
    let (house, ann) = (House::new(), Identity::generate());
    let of_ann = credential(house.creators().invite(ann.key(), MEMBER + 1, NO_EXPIRY_S));
    let revocation = house.creators().send_away(ann.key()).unwrap();
    let door = house.creators();
    assert!(refused(door.answer(ann.key(), AuthenticationRequest::Present(of_ann.clone()))).contains("was revoked"));
    assert_eq!(door.counts(), (0, 1));
    let there = house.door("there", &Identity::generate());
    welcomed(there.answer(ann.key(), AuthenticationRequest::Present(of_ann.clone())));
    assert!(there.takes_part(ann.key()));
    assert_eq!(there.hear(ann.key(), AccessNotice::Revoked(revocation.clone())), AccessChange::Revoked(ann.key()));
    assert_eq!(there.hear(ann.key(), AccessNotice::Revoked(revocation)), AccessChange::Nothing);
    assert!(!there.admits(ann.key()));
    let again = house.door("there", &Identity::generate());
    refused(again.answer(ann.key(), AuthenticationRequest::Present(of_ann)));
    assert!(matches!(there.send_away(house.creator.key()), Err(AccessError::NotInvited(_))));
}

#[test]
fn a_member_brings_its_own_visitors_and_only_who_may_invites_members() {
    let (house, [ann, bob, visitor]) = (House::new(), std::array::from_fn(|_| Identity::generate()));
    let creators = house.creators();
    let of_ann = credential(creators.invite(ann.key(), MEMBER + 1, 3_600));
    let anns = house.door("ann", &ann);
    assert!(matches!(anns.invite(bob.key(), MEMBER, 60), Err(AccessError::NotInvited(Refusal::None))));
    store_credential(&house.home.path().join("ann"), RUN, of_ann).unwrap();
    let anns = house.door("ann", &ann);
    let of_bob = credential(anns.invite(bob.key(), MEMBER, NO_EXPIRY_S));
    assert!(of_bob.until_s() <= now_s() + 3_600, "no longer than her own");
    assert!(matches!(anns.invite(bob.key(), MEMBER + 1, 60), Err(AccessError::NoRight(2))));
    store_credential(&house.home.path().join("bob"), RUN, of_bob).unwrap();
    let bobs = house.door("bob", &bob);
    assert!(matches!(bobs.invite_once([0; 16], MEMBER, (60, 60)), Err(AccessError::NoRight(MEMBER))));
    welcomed(creators.answer(visitor.key(), bobs.visitor(visitor.key()).unwrap()));
    assert!(creators.admits(visitor.key()) && !creators.takes_part(visitor.key()));
    assert!(matches!(bobs.send_away(ann.key()), Err(AccessError::NotYours { .. })), "upwards");
}

#[test]
fn who_was_sent_away_does_not_come_back_by_the_one_time_invitation_that_it_had() {
    let (house, ann) = (House::new(), Identity::generate());
    let one = once(house.creators().invite_once(invitation_token::secret(), MEMBER, (3_600, NO_EXPIRY_S)));
    let first = welcomed(house.creators().answer(ann.key(), AuthenticationRequest::Redeem(one.clone()))).unwrap();
    let revocation = house.creators().send_away(ann.key()).unwrap();
    // However late she asks: her credential is dated before the revocation.
    assert!(first.0[0].issued_s <= revocation.at_s);
    assert!(refused(house.creators().answer(ann.key(), AuthenticationRequest::Redeem(one))).contains("was revoked"));
}

#[test]
fn a_pass_that_was_made_up_is_noticed_and_one_peer_shows_few() {
    let (house, [ann, eve]) = (House::new(), std::array::from_fn(|_| Identity::generate()));
    let (creators, there) = (house.creators(), house.door("there", &Identity::generate()));
    let of_ann = credential(creators.invite(ann.key(), MEMBER, NO_EXPIRY_S));
    let notice = |credential: &Credential| AccessNotice::Present { credential: credential.clone(), sequence: 1 };
    assert_eq!(there.hear(eve.key(), notice(&of_ann)), AccessChange::Forged);
    assert_eq!(there.hear(ann.key(), notice(&of_ann)), AccessChange::Admitted);
    assert_eq!(there.hear(ann.key(), notice(&of_ann)), AccessChange::Nothing);
    let came = (0..100).filter(|lasts_s| {
        let another = credential(creators.invite(ann.key(), MEMBER, 1_000 + lasts_s));
        there.hear(ann.key(), notice(&another)) == AccessChange::Admitted
    });
    // Two intervals, in case one ends in between.
    assert!(came.count() <= 2);
    assert!(there.takes_part(ann.key()));
}
