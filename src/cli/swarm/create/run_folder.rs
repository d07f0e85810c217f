//! Checks whether a run can be created or resumed in a folder.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::cli::swarm::create::corpus::TextFlags;
use crate::cli::swarm::explain::explain;
use crate::cli::swarm::mistake::Mistake;
use crate::config::RunConfig;
use crate::names::BlobHash;
use crate::peer::Manifest;
use crate::peer::folder::{read_manifest, run_of_store};
use crate::text::stream_corpus;

/// The user's choices besides the configuration.
pub struct Wanted<'a> {
    /// The text, if given.
    pub text: &'a TextFlags,
    /// Whether newcomers receive it, if that can be chosen.
    pub share_text: Option<bool>,
}

/// Refuses a folder with another run, which is neither overwritten nor resumed.
pub fn check(folder: &Path, run: &RunConfig, wanted: &Wanted<'_>) -> anyhow::Result<()> {
    let refused = |what: &str| {
        let message = format!("{} holds {what}", folder.display());
        Err(Mistake::new(message).hint("choose another folder with --dir, or remove this one").into())
    };
    // As it was created: an amendment is no other wish.
    let manifest = match read_manifest(folder).map_err(explain)? {
        Some((bytes, ..)) => Some(Manifest::decode(&bytes).map_err(|error| explain(error.into()))?.0),
        None => None,
    };
    let of_store = run_of_store(folder).map_err(|error| explain(error.into()))?;
    let Some(manifest) = manifest else {
        return if of_store.is_some() { refused("the store of a run without its manifest") } else { Ok(()) };
    };
    let mut run = run.clone();
    // A pretrained model's, which `create` has added.
    run.text.chat = run.text.chat.or_else(|| manifest.config.text.chat.clone());
    if manifest.config != run {
        let differs =
            first_difference(&manifest.config, &run).map_or_else(String::new, |differs| format!(": {differs}"));
        return refused(&format!("a run with another configuration{differs}"));
    }
    match other_wish(&manifest, wanted)? {
        Some(what) => refused(&what),
        None => Ok(()),
    }
}

/// The first key, in the order of the alphabet, in which two configurations differ.
fn first_difference(found: &RunConfig, wanted: &RunConfig) -> Option<String> {
    let [found, wanted] = [found, wanted].map(|run| toml::Value::try_from(run).ok());
    difference("", &found?, &wanted?)
}

fn difference(key: &str, found: &toml::Value, wanted: &toml::Value) -> Option<String> {
    let (toml::Value::Table(had), toml::Value::Table(wants)) = (found, wanted) else {
        return (found != wanted).then(|| format!("{key} is {found} there, and is to be {wanted}"));
    };
    let keys: BTreeSet<&String> = had.keys().chain(wants.keys()).collect();
    keys.into_iter().find_map(|name| {
        let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        match (had.get(name), wants.get(name)) {
            (Some(found), Some(wanted)) => difference(&key, found, wanted),
            (Some(_), None) => Some(format!("{key} is set there")),
            (None, Some(_)) => Some(format!("{key} is not set there")),
            (None, None) => None,
        }
    })
}

/// The difference between the run and the user's choices. Text that is not given is assumed to be the run's.
fn other_wish(manifest: &Manifest, wanted: &Wanted<'_>) -> anyhow::Result<Option<String>> {
    match (manifest.share_text, wanted.share_text) {
        (true, Some(false)) => return Ok(Some("a run that shares its text (--share-text)".to_owned())),
        (false, Some(true)) => return Ok(Some("a run that does not share its text".to_owned())),
        _ => {}
    }
    let text = &wanted.text;
    let given = [(text.given_source(), manifest.corpus), (text.test_source(), manifest.test_corpus)];
    for (source, expected) in given {
        let Some(source) = source else { continue };
        let (reading, stop) = (manifest.config.reading(), AtomicBool::new(false));
        let survey = stream_corpus(&source, reading, &stop, &mut |_| ControlFlow::Continue(()));
        let found: BlobHash = survey.map_err(|error| explain(error.into()))?.hash;
        if found != expected {
            return Ok(Some(format!("a run with another corpus (hash {expected}) than {source} (hash {found})")));
        }
    }
    Ok(None)
}
