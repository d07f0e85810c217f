//! Collecting from a running swarm: the holders, the newest attested state of each module, and its bytes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::names::{ModuleId, PeerKey, Version};
use crate::peer::client::Entrance;
use crate::peer::client::swarm::SwarmClient;
use crate::peer::collect::CollectError;
use crate::peer::collected::writing::{Summary, Unfinished, Writer};
use crate::peer::collected::{ANCESTOR, PRETRAINED, ROUTER, TOKENIZER};
use crate::protocol::wire::message::Head;

/// Rounds over the missing modules, since the swarm continues while states are fetched.
const ROUNDS: usize = 6;

/// Time between two rounds.
const PAUSE: Duration = Duration::from_millis(500);

/// Progress reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The manifest has arrived.
    Run {
        name: String,
        /// Number of modules to fetch.
        modules: usize,
    },
    /// A module has arrived.
    Module {
        module: ModuleId,
        version: Version,
        from: PeerKey,
        /// Number of modules so far.
        done: usize,
    },
}

/// Joins the network as a client by the first address that answers, and writes the newest version of every module to
/// `target`.
pub async fn collect_from_swarm(
    entrance: impl Into<Entrance<'_>>,
    target: &Path,
    told: &mut (dyn FnMut(Told) + Send),
) -> Result<Summary, CollectError> {
    let unfinished = Unfinished::begin(target)?;
    let client = SwarmClient::connect(entrance.into()).await?;
    let mut writer = unfinished.of_run(&client.manifest_bytes, client.amendment.as_deref())?;
    writer.put_shard_table(&client.shard_table)?;
    told(Told::Run { name: writer.manifest.config.name.clone(), modules: client.plan.slots.grid().modules().len() });
    Collecting { client, writer }.run(told).await
}

struct Collecting {
    client: SwarmClient,
    writer: Writer,
}

impl Collecting {
    async fn run(mut self, told: &mut (dyn FnMut(Told) + Send)) -> Result<Summary, CollectError> {
        let modules = self.client.plan.slots.grid().modules();
        self.client.search(&modules).await?;
        let (tokenizer, router, ancestor) =
            (self.writer.manifest.tokenizer, self.writer.manifest.router, self.writer.manifest.ancestor);
        self.writer.put(TOKENIZER, &self.client.part(tokenizer, "the tokenizer").await?)?;
        self.writer.put(ROUTER, &self.client.part(router, "the router").await?)?;
        self.writer.put(ANCESTOR, &self.client.part(ancestor, "the ancestor").await?)?;
        if let Some(files) = self.writer.manifest.pretrained {
            let files = self.client.part(files, "the settings of the pretrained model").await?;
            self.writer.put(PRETRAINED, &files)?;
        }
        self.modules(&modules, told).await?;
        let paths = self.client.plan.slots.grid().paths();
        let Self { client, writer } = &mut self;
        for path in paths {
            // The own parameters of a finished path, if they differ from those of its modules.
            if writer.manifest.config.paths_end_apart() {
                let put = |_, bytes: Vec<u8>| Ok::<_, CollectError>(writer.put_best(path, &bytes)?.then_some(()));
                client.trainer(path, put).await?;
            }
            if writer.manifest.share_text {
                let text = client.test_text(path).await?;
                writer.put_test(path, text.as_deref())?;
            }
        }
        Ok(self.writer.finish()?)
    }

    async fn modules(&mut self, modules: &[ModuleId], told: &mut (dyn FnMut(Told) + Send)) -> Result<(), CollectError> {
        let mut reasons: BTreeMap<ModuleId, String> = BTreeMap::new();
        for round in 0..ROUNDS {
            let missing = self.writer.missing(modules);
            if missing.is_empty() {
                return Ok(());
            }
            if round > 0 {
                tokio::time::sleep(PAUSE).await;
                self.client.directory.begin_again();
                self.client.search(&missing).await?;
            }
            let heads = self.client.heads(&missing, &mut reasons).await?;
            for (module, candidates) in heads {
                let writer = &mut self.writer;
                let put = |head: Head, bytes: Vec<u8>| {
                    Ok::<_, CollectError>(writer.put_state(module, &bytes, head)?.map(|()| head.version))
                };
                match self.client.newest(&candidates, put).await? {
                    Ok((version, from)) => {
                        let done = modules.len() - self.writer.missing(modules).len();
                        told(Told::Module { module, version, from, done });
                    }
                    Err(reason) => drop(reasons.insert(module, reason)),
                }
            }
        }
        let missing = self.writer.missing(modules);
        let SwarmClient { directory, plan, .. } = &self.client;
        let without = missing.iter().filter(|module| directory.holders(plan, **module).is_empty());
        let without: Vec<ModuleId> = without.copied().collect();
        match missing.first() {
            None => Ok(()),
            Some(_) if !without.is_empty() => {
                Err(CollectError::NoHolder { modules: without, asked: directory.asked() })
            }
            Some(module) => {
                let reason = reasons.remove(module).unwrap_or_else(|| "no holder answered".to_owned());
                Err(CollectError::NotFetched { module: *module, reason })
            }
        }
    }
}
