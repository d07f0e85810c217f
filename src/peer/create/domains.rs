//! The domains that each path reads: counted while a run is created, and kept in the creator's folder for people who look
//! at it later. Nobody else has them: shards do not name the domains of their documents.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::names::{PathId, RunId};
use crate::store::write_file;
use crate::text::{Domains, TokenSet};

/// The file of the creator's folder.
const FILE: &str = "domains.json";

/// Domains of a path that are kept by name.
const MOST_NAMED: usize = 32;

/// Larger files are not read.
const MOST_BYTES: u64 = 64 << 20;

/// What one path reads of each domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathDomains {
    /// Training documents of the path, with those of domains that are not listed.
    pub documents: u64,
    /// The commonest domains, and their numbers of documents.
    pub domains: Vec<(String, u64)>,
}

/// What all paths of a run read, in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainsByPath {
    run: String,
    pub paths: Vec<PathDomains>,
}

/// Counts the documents of a set, each of which goes to `each` paths one after the other in `routes`.
pub(super) fn count(
    domains: &Domains,
    set: &TokenSet,
    (routes, each): (&[PathId], usize),
    paths: u32,
) -> Vec<PathDomains> {
    let names: BTreeMap<u32, &str> = domains.names().map(|(name, number)| (number, name)).collect();
    let mut counted = vec![(0, BTreeMap::<u32, u64>::new()); paths as usize];
    for (sequences, routes) in set.documents().zip(routes.chunks(each.max(1))) {
        let domain = domains.of(set.document(sequences.start) as usize);
        for PathId(path) in routes {
            let Some((documents, by_domain)) = counted.get_mut(*path as usize) else { continue };
            *documents += 1;
            if let Some(domain) = domain {
                *by_domain.entry(domain).or_default() += 1;
            }
        }
    }
    let of_path = |(documents, by_domain): (u64, BTreeMap<u32, u64>)| {
        let mut domains: Vec<(String, u64)> = by_domain
            .into_iter()
            .map(|(domain, count)| (names.get(&domain).copied().unwrap_or_default().to_owned(), count))
            .collect();
        domains.sort_by(|one, other| Reverse(one.1).cmp(&Reverse(other.1)).then_with(|| one.0.cmp(&other.0)));
        domains.truncate(MOST_NAMED);
        PathDomains { documents, domains }
    };
    counted.into_iter().map(of_path).collect()
}

impl DomainsByPath {
    pub(super) fn new(run: RunId, paths: Vec<PathDomains>) -> Self {
        Self { run: run.to_string(), paths }
    }

    /// Keeps them in the creator's folder.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        Ok(write_file(&folder.join(FILE), &serde_json::to_vec(self)?)?)
    }

    /// Those of a run, if it was created in this folder from text whose domains are known.
    ///
    /// # Errors
    /// If the file cannot be read, or is damaged.
    pub fn read(folder: &Path, run: RunId) -> io::Result<Option<Self>> {
        let path = folder.join(FILE);
        let bytes = match std::fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(about) if about.len() > MOST_BYTES => return Err(io::Error::other("it is too large")),
            Ok(_) => std::fs::read(&path)?,
        };
        let found: Self = serde_json::from_slice(&bytes)?;
        Ok(Some(found).filter(|found| found.run == run.to_string()))
    }

    /// Whether they tell anything: there are at least two domains.
    pub fn differ(&self) -> bool {
        let mut names = self.paths.iter().flat_map(|path| &path.domains).map(|(name, _)| name);
        names.next().is_some_and(|first| names.any(|name| name != first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_of_a_document_counts_its_domain_and_the_commonest_come_first() {
        let documents: Vec<Vec<u32>> = (0..6).map(|number| vec![number; 3]).collect();
        let set = TokenSet::cut_for_scoring(&documents, 8);
        let mut domains = Domains::default();
        for domain in [Some("news"), Some("law"), Some("law"), None, Some("law"), Some("news")] {
            domains.push(domain);
        }
        let routes: Vec<PathId> = [0, 1, 0, 1, 0, 1, 0, 2, 2, 1, 2, 1].map(PathId).to_vec();
        let found = count(&domains, &set, (&routes, 2), 3);
        let of = |documents, domains: &[(&str, u64)]| PathDomains {
            documents,
            domains: domains.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        };
        let expected =
            [of(4, &[("law", 2), ("news", 1)]), of(5, &[("law", 3), ("news", 2)]), of(3, &[("law", 1), ("news", 1)])];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_was_counted_for_another_run_is_not_shown_for_this_one() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (RunId([1; 32]), RunId([2; 32]));
        assert_eq!(DomainsByPath::read(folder.path(), one).unwrap(), None);
        let written = DomainsByPath::new(one, vec![PathDomains { documents: 3, domains: vec![("law".to_owned(), 3)] }]);
        written.write(folder.path()).unwrap();
        assert!(!written.differ(), "one domain tells nothing");
        assert_eq!(DomainsByPath::read(folder.path(), one).unwrap(), Some(written));
        assert_eq!(DomainsByPath::read(folder.path(), other).unwrap(), None);
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(DomainsByPath::read(folder.path(), one).is_err());
    }
}
