//! The commands that need text, tensors and the network: all that train a run, look at one or use it.

mod asked;
mod checkpoint;
mod collect;
mod collected_run;
mod corpus;
mod doctor;
mod earlier;
mod evaluate;
mod experiment;
mod explain;
mod export;
mod foreign_folder;
mod found;
mod founding_folder;
mod founding_progress;
mod generate;
mod import;
mod inspect;
mod invitations;
mod invite;
mod join;
mod listen;
mod peer_progress;
mod prepare;
mod revoke;
mod running;
mod simulate;
mod stages;
mod status;
mod transducer;

use super::{Globals, commands, interrupt, mistake, output};

commands! {
    pub(super) enum Command {
        /// Train a run with several peers on this machine, and compare it with a dense path.
        Simulate(simulate::Simulate),
        /// Train the arms of an experiment, and write tables and plots of what came of them.
        Experiment(experiment::Experiment),
        /// Make one file of pictures in folders, from which runs that read pictures learn.
        Prepare(prepare::Prepare),
        /// Start a swarm, train in it, and print the line by which others join.
        Found(found::Found),
        /// Join a swarm by the address of any of its peers, and train in it.
        Join(join::Join),
        /// Look at this machine as a peer would need it, and at how others see it.
        Doctor(doctor::Doctor),
        /// Invite a peer to a run that is not open.
        Invite(invite::Invite),
        /// Send a peer away from a run by invitation, or take an invitation back.
        Revoke(revoke::Revoke),
        /// Fetch all modules of a run into one folder.
        Collect(collect::Collect),
        /// Show what running peers are doing.
        Status(status::Status),
        /// Score a run, in its swarm or collected, on its test text or on text of yours.
        Evaluate(evaluate::Evaluate),
        /// Continue a text with a run, in its swarm or collected.
        Generate(generate::Generate),
        /// Teach a copy of a run's ancestor which path reads on best, for `--route-every`.
        Transducer(transducer::Transducer),
        /// Look inside a path while it reads.
        Inspect(inspect::Inspect),
        /// Write a path of a collected run as a folder that transformers loads.
        Export(export::Export),
        /// Make a model of transformers the ancestor of a run.
        Import(import::Import),
    }
}
