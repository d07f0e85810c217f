//! The commands that need text, tensors and the network: all that train a run, look at one or use it.

mod access;
mod create;
mod doctor;
mod explain;
mod join;
mod listen;
mod model;
mod peer_progress;
mod research;
mod running;
mod simulate;
mod stages;
mod status;
mod stopped;
mod waiting;

use super::{Globals, commands, interrupt, mistake, output};

commands! {
    pub(super) enum Command {
        /// Train a run with several peers on this machine, and compare it with a dense path.
        Simulate(simulate::Simulate),
        /// Train the arms of an experiment, and write tables and plots of what came of them.
        Experiment(crate::cli::swarm::research::experiment::Experiment),
        /// Make one file of images in folders, from which runs that read images learn.
        Prepare(crate::cli::swarm::research::prepare::Prepare),
        /// Start a swarm, train in it, and print the line by which others join.
        Create(crate::cli::swarm::create::Found),
        /// Join a swarm by the address of any of its peers, and train in it.
        Join(join::Join),
        /// Look at this machine as a peer would need it, and at how others see it.
        Doctor(doctor::Doctor),
        /// Invite a peer to a run that is not open.
        Invite(crate::cli::swarm::access::invite::Invite),
        /// Send a peer away from a run by invitation, or take an invitation back.
        Revoke(crate::cli::swarm::access::revoke::Revoke),
        /// Fetch all modules of a run into one folder.
        Collect(crate::cli::swarm::model::collect::Collect),
        /// Show what running peers are doing.
        Status(status::Status),
        /// Score a run, in its swarm or collected, on its test text or on text of yours.
        Evaluate(crate::cli::swarm::model::evaluate::Evaluate),
        /// Continue a text with a run, in its swarm or collected.
        Generate(crate::cli::swarm::model::generate::Generate),
        /// Teach a copy of a run's ancestor which path reads on best, for `--route-every`.
        Transducer(crate::cli::swarm::research::transducer::Transducer),
        /// Look inside a path while it reads.
        Inspect(crate::cli::swarm::research::inspect::Inspect),
        /// Write a path of a collected run as a folder that transformers loads.
        Export(crate::cli::swarm::model::export::Export),
        /// Make a model of transformers the ancestor of a run.
        Import(crate::cli::swarm::model::import::Import),
    }
}
