//! The commands that need text, tensors and the network: those that train, inspect or use a run.

mod access;
mod api;
mod create;
mod doctor;
mod explain;
mod join;
mod listen;
mod model;
mod peer_progress;
mod reading;
mod research;
mod running;
mod simulate;
mod stages;
mod status;
mod stopped;
mod training_memory;
mod version;
mod watch;
mod web;
mod whom;

pub(super) use web::PageFlags;

use super::{Globals, commands, interrupt, mistake, output};

commands! {
    pub(super) enum Command {
        /// Train a small run with four peers on this machine, with what is in the program.
        Demo(simulate::demo::Demo),
        /// Write the configuration of a run.
        Init(crate::cli::swarm::create::init::Init),
        /// Train a run with several peers on this machine, and compare it with a dense path.
        Simulate(simulate::Simulate),
        /// Train the arms of an experiment, and write tables and plots of the results.
        Experiment(crate::cli::swarm::research::experiment::Experiment),
        /// Write runs and experiments as one page for people, which opens without a network.
        Report(crate::cli::swarm::research::report::Report),
        /// Make one file of images from folders, for runs that read images.
        Prepare(crate::cli::swarm::research::prepare::Prepare),
        /// Start a swarm, train in it, and print the command by which others join.
        Create(crate::cli::swarm::create::Found),
        /// Join a swarm by the address of any of its peers, and train in it.
        Join(join::Join),
        /// Check this machine for a peer, and its reachability.
        Doctor(doctor::Doctor),
        /// Invite a peer to a run that is not open.
        Invite(crate::cli::swarm::access::invite::Invite),
        /// Revoke the access of a peer to a run by invitation, or an unused invitation.
        Revoke(crate::cli::swarm::access::revoke::Revoke),
        /// Give a run more phases while it runs, or require a newer program of it. Only its creator can.
        Amend(crate::cli::swarm::access::amend::Amend),
        /// Fetch all modules of a run into one folder.
        Collect(crate::cli::swarm::model::collect::Collect),
        /// Show what running peers are doing.
        Status(status::Status),
        /// Follow a swarm as a screen in this terminal or as a page: peers of this machine, or a swarm at an address.
        Watch(watch::Watch),
        /// Score a run, in its swarm or collected, on its test text or on your text.
        Evaluate(crate::cli::swarm::model::evaluate::Evaluate),
        /// Continue a text with a run, in its swarm or collected.
        Generate(crate::cli::swarm::model::generate::Generate),
        /// Serve a run, in its swarm or collected, to programs that know OpenAI's API.
        Serve(crate::cli::swarm::model::serve::Serve),
        /// Train a copy of a run's ancestor to choose the path that reads on best, for `--route-every`.
        Transducer(crate::cli::swarm::research::transducer::Transducer),
        /// Inspect a path while it reads.
        Inspect(crate::cli::swarm::research::inspect::Inspect),
        /// Print the versions of this program, of its messages and of its files.
        Version(version::Version),
        /// Write a path of a collected run as a folder that transformers loads.
        Export(crate::cli::swarm::model::export::Export),
        /// Make a model of transformers the ancestor of a run.
        Import(crate::cli::swarm::model::import::Import),
    }
}
