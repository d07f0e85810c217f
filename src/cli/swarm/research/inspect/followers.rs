//! `pathswarm inspect dna --follow ROUTE`: the tokens that take a route.

use serde_json::json;

use crate::cli::swarm::research::inspect::explain;
use crate::cli::swarm::research::inspect::patches::tile;
use crate::cli::swarm::research::inspect::shown::DnaView;
use crate::inspect::dna::{RoutePattern, TokenRoute, TokenRoutes};
use crate::inspect::plots::sheet::{Tile, sheet};

/// Tokens that people see, and patches in a row of their image.
const ROWS: usize = 24;
const ACROSS: usize = 24;
/// Tokens shown before and after.
const AROUND: usize = 6;

impl DnaView<'_> {
    /// The tokens or patches of the passages that take a route.
    pub(super) fn follow(&self, route: &str, token_routes: &TokenRoutes) -> anyhow::Result<()> {
        let pattern = RoutePattern::parse(route, self.dna).map_err(explain)?;
        let found = pattern.followers(token_routes, self.dna);
        let places: Vec<_> = found
            .iter()
            .map(|one| json!({ "sequence": one.sequence, "position": one.position, "token": one.token }))
            .collect();
        self.shown.event("followers", &json!({ "route": route, "tokens": places }))?;
        let all = token_routes.all.len().max(1);
        let share = 100.0 * found.len() as f64 / all as f64;
        self.shown.line(&format!("\n{} of {all} tokens ({share:.2}%) take {route}", found.len()))?;
        if self.subject.config().reads_images() {
            return self.patches_of(&found);
        }
        let rows: Vec<Vec<String>> = found.iter().take(ROWS).map(|one| self.in_context(one).into()).collect();
        self.shown.table("The first of these tokens", &["token", "before", "behind"], &rows)
    }

    fn in_context(&self, one: &TokenRoute) -> [String; 3] {
        let tokens = &self.passages.sequences[one.sequence];
        let text = |from: usize, to: usize| {
            let text = self.subject.tokenizer.decode(&tokens[from.min(tokens.len())..to.min(tokens.len())]);
            format!("{text:?}")
        };
        let (at, next) = (one.position, one.position + 1);
        [text(at, next), text(at.saturating_sub(AROUND), at), text(next, next + AROUND)]
    }

    fn patches_of(&self, found: &[&TokenRoute]) -> anyhow::Result<()> {
        let (side, patch) = self.sizes();
        let cut = |one: &&TokenRoute| tile(self.passages, one.sequence, side).patch(patch, one.position);
        let tiles: Vec<Tile> = found.iter().take(ACROSS * ACROSS).map(cut).collect();
        if tiles.is_empty() {
            return Ok(());
        }
        let rows: Vec<Vec<Tile>> = tiles.chunks(ACROSS).map(<[Tile]>::to_vec).collect();
        self.shown.image("followers.png", "Patches that take the route", || sheet(&rows, 40))
    }
}
