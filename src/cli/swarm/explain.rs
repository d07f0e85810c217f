//! Hints for errors of creating, joining and training a run.

use std::error::Error;

use super::mistake::{Mistake, with_causes};
use crate::cli::config::memory::TOO_LARGE;
use crate::cli::swarm::access;
use crate::cli::swarm::reading::UNFIT;
use crate::experiment::training::assignment::AssignmentError;
use crate::model::device::DeviceError;
use crate::network::{IdentityError, StartError};
use crate::observe::logging::LoggingError;
use crate::peer::PeerError;
use crate::peer::access::access_control::AccessError;
use crate::peer::client::VisitError;
use crate::peer::create::CreateError;
use crate::peer::inference::client::AskError;
use crate::peer::join::JoinError;
use crate::peer::manifest::ManifestError;
use crate::peer::start::{NeedsText, OtherText, PartGone};
use crate::routing::{FeaturesError, KmeansError, LogisticError, RouterError, ShardError};
use crate::store::OpenError;
use crate::text::{CorpusError, TokenizerError};
use crate::training::StepError;
use crate::training::memory_plan::PlanError;

const OTHER_FOLDER: &str = "choose another folder with --dir";
/// The hint if a peer's folder was copied.
pub(super) const COPIED_IDENTITY: &str = "stop both; in the folder of the copy, remove the file key, or use another \
    --dir there, so that it becomes a peer of its own; start them again";
const OTHER_INTERFACE: &str = "with --listen, name an address that this machine has, such as \
    /ip4/0.0.0.0/udp/0/quic-v1 for all of IPv4 or /ip6/::/udp/0/quic-v1 for all of IPv6";
const MORE_TEXT: &str = "give more text with --corpus, or use a smaller grid";
const LOWER_RATE: &str = "set a lower training.learning_rate";

/// Makes it a [`Mistake`] if the user can correct it.
pub(super) fn explain(error: anyhow::Error) -> anyhow::Error {
    match error.chain().find_map(hint) {
        Some(hint) => Mistake::new(with_causes(&error)).hint(hint).into(),
        None => error,
    }
}

fn of_the_network(error: &StartError) -> Option<&'static str> {
    match error {
        StartError::NotListening { .. } => Some(OTHER_INTERFACE),
        StartError::PortTaken(_) => Some("choose another port with --listen, or port 0 for any"),
        StartError::NotAnAddress(_) | StartError::NotARelay(_) => Some("correct it, or leave it out"),
        StartError::NotBuilt { .. } => None,
    }
}

fn hint(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    if cause.is::<NeedsText>() || cause.is::<OtherText>() {
        return Some("give --corpus with the creator's files in the same order, or ask the creator for --share-text");
    }
    if cause.is::<PartGone>() {
        return Some("rejoin with pathswarm join, the address of another peer of the run, and this --dir");
    }
    if cause.is::<CreateError>() {
        return Some("check --corpus, and the levels and model of the configuration");
    }
    if let Some(CorpusError::Unfit { .. }) = cause.downcast_ref() {
        return Some(UNFIT);
    }
    if let Some(remedy) = cause.downcast_ref().and_then(CorpusError::remedy) {
        return Some(remedy);
    }
    if cause.is::<CorpusError>() || cause.is::<TokenizerError>() {
        return Some("check --corpus and --tokenizer");
    }
    if let Some(RouterError::Divide { .. }) = cause.downcast_ref() {
        return Some("give more text with --corpus, keep the earlier run's grid, or fit a router with --refit-router");
    }
    let too_little = cause.is::<ShardError>() || cause.is::<AssignmentError>() || cause.is::<LogisticError>();
    if too_little || cause.is::<RouterError>() || cause.is::<KmeansError>() {
        return Some(MORE_TEXT);
    }
    if let Some(PlanError::TooLarge(_)) = cause.downcast_ref() {
        return Some(TOO_LARGE);
    }
    if cause.is::<DeviceError>() {
        return Some("choose device = \"cpu\" in the machine's profile, or --set device=cpu");
    }
    if cause.is::<FeaturesError>() || matches!(cause.downcast_ref(), Some(StepError::NotFinite { .. })) {
        return Some(LOWER_RATE);
    }
    match cause.downcast_ref() {
        Some(IdentityError::NotAKey(_)) => return Some("restore the peer's key, or choose another folder with --dir"),
        Some(IdentityError::File { .. }) => {
            return Some("make it readable and writable for this user, or choose another folder with --dir");
        }
        None => {}
    }
    if matches!(cause.downcast_ref(), Some(PeerError::CopiedIdentity)) {
        return Some(COPIED_IDENTITY);
    }
    if cause.is::<ManifestError>() || cause.is::<LoggingError>() {
        return Some(OTHER_FOLDER);
    }
    if let Some(error) = cause.downcast_ref() {
        return of_the_network(error);
    }
    if let Some(error) = cause.downcast_ref::<OpenError>() {
        return if matches!(error, OpenError::Disk(_)) { None } else { Some(OTHER_FOLDER) };
    }
    if let Some(AskError::Visit(VisitError::Join(JoinError::NotInvited { .. }))) = cause.downcast_ref() {
        return Some(access::VISIT);
    }
    if let Some(error) = cause.downcast_ref::<AccessError>() {
        return access::hint(error);
    }
    if let Some(AskError::Visit(VisitError::Join(error))) = cause.downcast_ref() {
        return hint(error);
    }
    match cause.downcast_ref::<JoinError>()? {
        JoinError::OtherRun { .. } => Some(OTHER_FOLDER),
        JoinError::NotKnown { .. } => {
            Some("leave the address out to resume that run, or choose another folder with --dir for another run")
        }
        JoinError::TooLarge { .. } => Some("allow more in the machine's profile, or with --set disk_bytes=…"),
        JoinError::NotInvited { .. } => Some(access::ASK),
        JoinError::NotForMe { .. } => {
            Some("ask for an invitation for this peer's key, or use --dir with the folder of the invited peer")
        }
        JoinError::MakerUnknown { .. } => Some("give the address of the peer that made the invitation; it has to run"),
        JoinError::Disk(_) => None,
        JoinError::Manifest { .. } => Some("use the same version of pathswarm as the swarm"),
        _ => Some("check the address, that the peer runs, and that its port can be reached from here"),
    }
}
