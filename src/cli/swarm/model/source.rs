//! The source for `evaluate` and `generate`: a running swarm, or a collected run on this disk.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::swarm::explain::explain as explain_visit;
use crate::cli::swarm::mistake::{Mistake, OrMistake};
use crate::cli::swarm::model::collected_run;
use crate::cli::swarm::{Globals, access, listen};
use crate::model::set_threads;
use crate::network::Multiaddr;
use crate::peer::client::Entrance;
use crate::peer::inference::client::{InferenceClient, Local, Swarm};
use crate::peer::transducer::{Guided, TransducerError};
use crate::protocol::limits::MAX_CONTROL_BYTES;

const WHOM: &str = "give the address of a running peer (/ip4/…/p2p/…), or --local DIR with a collected run";

/// Flags of the source.
#[derive(Args)]
pub struct Whom {
    /// A running peer of the swarm to use.
    #[arg(value_name = "ADDRESS")]
    address: Option<String>,
    /// Use a collected run on this disk instead of a swarm.
    #[arg(long, value_name = "DIR")]
    local: Option<PathBuf>,
    /// The sponsor in a run by invitation: the folder of a peer of this machine that takes part.
    #[arg(long = "as", value_name = "DIR", requires = "address")]
    sponsor: Option<PathBuf>,
    /// Choose the path again after so many tokens, by those just before; at most the model's context.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    route_every: Option<u32>,
    /// Choose it with this file of `pathswarm transducer`, made for the same number of tokens.
    #[arg(long, value_name = "FILE", requires = "route_every")]
    transducer: Option<PathBuf>,
}

impl Whom {
    /// Takes the address from the end of a list that swallowed it, as that of `--text FILE… ADDRESS` does.
    pub fn take_address_from(&mut self, names: &mut Vec<PathBuf>) {
        let is_address = |name: &PathBuf| {
            let address = name.to_str().and_then(|name| name.parse::<Multiaddr>().ok());
            address.is_some_and(|address| address.iter().next().is_some()) && !name.exists()
        };
        if self.address.is_none() && self.local.is_none() && names.len() > 1 && names.last().is_some_and(is_address) {
            self.address = names.pop().and_then(|name| name.into_os_string().into_string().ok());
        }
    }

    /// The chosen source, before any peer is asked.
    fn choose(&self) -> Result<Source<'_>, Mistake> {
        match (self.address.as_deref(), self.local.as_deref()) {
            (Some(address), None) if Path::new(address).exists() => {
                Err(Mistake::new(format!("{address}: this is a folder or file, not the address of a peer"))
                    .hint(format!("for a collected run, give --local {address}")))
            }
            (Some(address), None) => Ok(Source::Swarm(listen::parse(address)?)),
            (None, Some(folder)) => Ok(Source::Local(folder)),
            (Some(_), Some(_)) => Err(Mistake::new("both an address and --local DIR were given")
                .hint("give one of them: the address to ask the swarm, or the folder")),
            (None, None) => Err(Mistake::new("neither an address nor --local DIR was given").hint(WHOM)),
        }
    }

    /// Opens the source.
    pub fn open(&self, globals: &Globals) -> anyhow::Result<Box<dyn InferenceClient>> {
        let source = self.choose()?;
        let machine = globals.machine_only()?;
        set_threads(machine.threads);
        let output = globals.output();
        let (in_swarm, most) = (matches!(source, Source::Swarm(_)), MAX_CONTROL_BYTES);
        let client: Box<dyn InferenceClient> = match source {
            Source::Local(folder) => Box::new(Local::new(collected_run::open(folder)?, machine.first_device())?),
            Source::Swarm(address) => {
                // The reader may be gone.
                let told = move |line: &str| drop(output.complain(line));
                let sponsor = self.sponsor.as_deref().map(access::sponsor).transpose()?;
                let entrance = Entrance { addresses: &[address], sponsor: sponsor.as_deref() };
                let visited = Swarm::visit(entrance, machine.first_device(), Box::new(told));
                Box::new(visited.map_err(explain_visit)?)
            }
        };
        let context = client.config().model.context;
        if self.route_every().is_some_and(|every| every > context) {
            return Err(Mistake::new(format!("--route-every is larger than the context of {context} tokens"))
                .hint(format!("give a number from 1 to {context}"))
                .into());
        }
        let model = &client.config().model;
        if model.reads_images() && in_swarm && 4 * model.context + 1024 > most {
            let message = format!("an image of {} pixels a side is too large for a query to peers", model.side());
            return Err(Mistake::new(message).hint("collect the run, and give --local DIR").into());
        }
        if client.config().model.reads_images() && self.route_every().is_some() {
            let message = "--route-every does not apply to images: each image is routed once, as a whole";
            return Err(Mistake::new(message).hint("leave --route-every out").into());
        }
        if client.config().model.looks_ahead() && self.route_every().is_some() {
            let message = "--route-every cannot be used with pooling = \"sequence\": its features include the tokens \
                that the path is to be chosen for";
            return Err(Mistake::new(message).hint("leave --route-every out, or train with another pooling").into());
        }
        match (&self.transducer, self.route_every()) {
            (Some(file), Some(every)) => {
                let hint = "make one: pathswarm transducer … --route-every TOKENS --text FILE --out FILE";
                let bytes =
                    std::fs::read(file).map_err(|error| format!("{}: {error}", file.display())).or_mistake(hint)?;
                let guided = Guided::open(client, &bytes, every, &machine);
                Ok(Box::new(guided.map_err(|error| match error.downcast::<TransducerError>() {
                    Ok(error) => Mistake::new(format!("{}: {error}", file.display())).hint(hint).into(),
                    Err(other) => other,
                })?))
            }
            _ => Ok(client),
        }
    }

    /// Number of tokens after which the path is chosen again.
    pub fn route_every(&self) -> Option<usize> {
        self.route_every.map(|every| every as usize)
    }
}

enum Source<'a> {
    Swarm(Multiaddr),
    Local(&'a Path),
}

/// The user can correct errors of the folder.
pub(in crate::cli::swarm) fn explain(error: anyhow::Error) -> anyhow::Error {
    collected_run::explain(error)
}

/// A line for people about the peers that answered; `None` without a swarm.
pub(in crate::cli::swarm) fn answered(client: &dyn InferenceClient) -> Option<String> {
    let names: Vec<String> = client.answered().iter().map(|peer| format!("…{}", peer.short())).collect();
    if names.is_empty() { None } else { Some(format!("answered by {}", names.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "/ip4/127.0.0.1/tcp/4001";

    fn whom(address: Option<&str>, local: Option<&str>) -> Whom {
        Whom {
            sponsor: None,
            address: address.map(str::to_owned),
            local: local.map(PathBuf::from),
            route_every: None,
            transducer: None,
        }
    }

    #[test]
    fn one_is_asked_and_not_two() {
        assert!(matches!(whom(Some(ADDRESS), None).choose(), Ok(Source::Swarm(_))));
        assert!(matches!(whom(None, Some("model")).choose(), Ok(Source::Local(_))));
        assert!(whom(None, None).choose().is_err() && whom(Some(ADDRESS), Some("model")).choose().is_err());
        assert!(whom(Some("example.org"), None).choose().is_err());
        assert!(
            whom(Some("/tmp"), None).choose().is_err_and(|mistake| mistake.to_string().contains("a folder or file"))
        );
    }

    #[test]
    fn an_address_behind_the_files_is_one() {
        let mut files = vec![PathBuf::from("a.txt"), PathBuf::from(ADDRESS)];
        let mut asked = whom(None, None);
        asked.take_address_from(&mut files);
        assert_eq!((asked.address.as_deref(), files), (Some(ADDRESS), vec![PathBuf::from("a.txt")]));
        for (mut asked, names) in [
            (whom(None, None), vec!["a.txt", "/home/me/b.txt"]),
            (whom(None, Some("model")), vec!["a.txt", ADDRESS]),
            (whom(None, None), vec![ADDRESS]),
        ] {
            let mut files: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            asked.take_address_from(&mut files);
            assert!(asked.address.is_none() && files.len() == names.len());
        }
    }
}
