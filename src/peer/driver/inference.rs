//! Queries of other peers about text: the driver looks up the states of the path and passes the query to the inference
//! server's thread, which answers by itself.

use std::collections::BTreeMap;

use crate::names::{BlobRef, ModuleId, PathId, PeerKey};
use crate::network::RequestToken;
use crate::peer::driver::Driver;
use crate::peer::inference::engine::PathParts;
use crate::peer::inference::server::Asked;
use crate::peer::respond::respond;
use crate::protocol::Response;
use crate::query::{QueriedModel, Query};

impl Driver {
    /// Passes on a query, if it can be answered here.
    pub(crate) fn answer_query(&self, from: PeerKey, token: RequestToken, question: Query) {
        let handed = self.inference.bounds.check(&question).map_err(|error| error.to_string()).and_then(|()| {
            let states = match &question {
                Query::Score(QueriedModel::Path(path), _) => self.states_of(*path)?,
                Query::Continue(prompt) | Query::ContinueWithScores(prompt) => self.states_of(prompt.path)?,
                Query::Route(_) => self.state_of_the_router(),
                Query::Score(QueriedModel::Ancestor, _) => Vec::new(),
            };
            let path = match &question {
                Query::Score(QueriedModel::Path(path), _) => Some(*path),
                Query::Continue(prompt) | Query::ContinueWithScores(prompt) => Some(prompt.path),
                Query::Route(_) | Query::Score(QueriedModel::Ancestor, _) => None,
            };
            let trainer = path.and_then(|path| self.counts_by(path));
            let of_member = self.access.is_member(from);
            self.inference.ask(Asked { from, of_member, token, question, parts: PathParts { states, trainer } })
        });
        if let Err(reason) = handed {
            respond(&self.network, token, &Response::Refused(reason));
        }
    }

    /// The trainer state with a path's own parameters, if it has any.
    fn counts_by(&self, path: PathId) -> Option<BlobRef> {
        let unsent = || self.node.trainer(path).filter(|_| self.manifest.config.outer.keep_unsent);
        self.tasks.best.get(&path).copied().or_else(unsent)
    }

    /// The present state of the router, in a run that reshards.
    fn state_of_the_router(&self) -> Vec<(ModuleId, BlobRef)> {
        let module = self.manifest.config.router_module();
        let states = self.node.states().into_iter().filter(|(held, ..)| Some(*held) == module);
        states.map(|(module, _, state)| (module, state)).collect()
    }

    /// The states of a path of the grid, if all of its modules are here.
    fn states_of(&self, path: PathId) -> Result<Vec<(ModuleId, BlobRef)>, String> {
        // Only its holder has its unsent changes and, at the end, its best parameters.
        let config = &self.manifest.config;
        let apart = config.outer.keep_unsent || (config.training.early_stopping && self.node.is_done());
        if apart && !self.node.holds(path) {
            return Err(format!("this peer does not hold path {path}, and only its holder has its own state"));
        }
        let begun = self.node.states().iter().any(|(_, version, _)| version.0 > 0);
        if config.outer.keep_unsent && begun && self.counts_by(path).is_none() {
            return Err(format!("this peer does not have the unsent values of path {path}"));
        }
        let here: BTreeMap<ModuleId, BlobRef> =
            self.node.states().into_iter().map(|(module, _, state)| (module, state)).collect();
        let state = |module: ModuleId| {
            let state =
                here.get(&module).ok_or_else(|| format!("this peer does not hold module {module} of path {path}"))?;
            Ok((module, *state))
        };
        self.inference.grid.modules_of(path).into_iter().map(state).collect()
    }
}
