//! The plots of `inspect dna` for images: the route of each patch, the patches of common routes, and the compute of
//! images.

use std::collections::BTreeMap;

use crate::cli::swarm::research::inspect::shown::DnaView;
use crate::inspect::Passages;
use crate::inspect::dna::{Compute, Ranks, TokenRoute, TokenRoutes};
use crate::inspect::plots::sheet::{Tile, sheet};

/// Plotted images.
const IMAGES: usize = 24;
/// Plotted routes, and patches of each.
const WAYS: usize = 16;
const PATCHES: usize = 24;

/// An image of the passages.
pub(super) fn tile(passages: &Passages, image: usize, side: usize) -> Tile {
    Tile::of_planes(&bytes(passages, image), side)
}

/// The bytes of its planes.
pub(super) fn bytes(passages: &Passages, image: usize) -> Vec<u8> {
    let tokens = passages.sequences.get(image).map_or(&[][..], |tokens| &tokens[..tokens.len().saturating_sub(1)]);
    tokens.iter().map(|byte| *byte as u8).collect()
}

/// The name of a class, if known.
pub(super) fn class_name(passages: &Passages, class: u32) -> String {
    let mut images = passages.sequences.iter().zip(&passages.domains);
    let domain = images.find_map(|(tokens, domain)| domain.filter(|_| tokens.last() == Some(&class)));
    let name = domain.and_then(|domain| passages.names.get(domain as usize));
    name.cloned().unwrap_or_else(|| format!("class {class}"))
}

/// So many of some, or all, evenly spaced.
fn evenly(all: usize, most: usize) -> Vec<usize> {
    let taken = all.min(most);
    (0..taken).map(|at| at * all / taken).collect()
}

impl DnaView<'_> {
    pub(super) fn sizes(&self) -> (usize, usize) {
        let model = self.subject.config();
        (model.side(), model.images.map_or(1, |images| images.patch))
    }

    /// Sheets of images, each next to values of its patches.
    pub(super) fn images(&self, token_routes: &TokenRoutes, ranks: &Ranks, compute: &Compute) -> anyhow::Result<()> {
        let by_route = ranks.by_route();
        let rank = |token_route: &TokenRoute| {
            let rank = by_route.get(&token_route.route(self.dna)[..]).copied().unwrap_or(ranks.routes.len());
            1.0 - (rank as f64 + 1.0).ln() / (ranks.routes.len().max(2) as f64).ln()
        };
        let caption = "Images, and below them how common the route of each patch is";
        self.beside(("ranks.png", caption), token_routes, &evenly(self.passages.sequences.len(), IMAGES), &rank)?;
        let computing = self.dna.modules.computing();
        let busy = |token_route: &TokenRoute| {
            let chosen = token_route.chosen.iter().flatten();
            let all = token_route.chosen.iter().map(Vec::len).sum::<usize>().max(1);
            chosen.filter(|module| usize::from(**module) < computing).count() as f64 / all as f64
        };
        let mut order: Vec<usize> = (0..compute.by_sequence.len()).collect();
        order.sort_by(|a, b| compute.by_sequence[*a].total_cmp(&compute.by_sequence[*b]));
        let third = (IMAGES / 3).min(order.len());
        let middle = (order.len() - third) / 2;
        let some = [&order[..third], &order[middle..middle + third], &order[order.len() - third..]].concat();
        let caption = "Images by how much is computed for them, and below them for which patches";
        self.beside(("compute.png", caption), token_routes, &some, &busy)?;
        self.followers(token_routes, ranks)
    }

    /// Rows of eight images, and below each row the same images tinted by a value of each patch.
    fn beside(
        &self,
        (name, caption): (&str, &str),
        token_routes: &TokenRoutes,
        images: &[usize],
        value: &dyn Fn(&TokenRoute) -> f64,
    ) -> anyhow::Result<()> {
        let (side, patch) = self.sizes();
        let mut values: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for token_route in token_routes.all.iter().filter(|token_route| images.contains(&token_route.sequence)) {
            values.entry(token_route.sequence).or_default().push(value(token_route));
        }
        let mut rows = Vec::new();
        for row in images.chunks(8) {
            let plain: Vec<Tile> = row.iter().map(|image| tile(self.passages, *image, side)).collect();
            let tinted = plain.iter().zip(row).map(|(tile, image)| tile.tinted(patch, &values[image])).collect();
            rows.extend([plain, tinted]);
        }
        self.shown.image(name, caption, || sheet(&rows, 96))
    }

    /// In each row, patches that take one of the commonest routes.
    fn followers(&self, token_routes: &TokenRoutes, ranks: &Ranks) -> anyhow::Result<()> {
        let (side, patch) = self.sizes();
        let by_route = ranks.by_route();
        let mut followers = vec![Vec::new(); ranks.routes.len().min(WAYS)];
        for token_route in &token_routes.all {
            let rank = by_route.get(&token_route.route(self.dna)[..]).copied().unwrap_or(usize::MAX);
            followers.get_mut(rank).into_iter().for_each(|own| own.push(token_route));
        }
        let cut = |own: &&TokenRoute| tile(self.passages, own.sequence, side).patch(patch, own.position);
        let row = |own: &Vec<&TokenRoute>| evenly(own.len(), PATCHES).into_iter().map(|at| cut(&own[at])).collect();
        let rows: Vec<Vec<Tile>> = followers.iter().map(row).collect();
        self.shown.image("routes.png", "Patches of the commonest routes, a row for each", || sheet(&rows, 40))
    }
}
