//! `pathswarm inspect dna`

use std::path::PathBuf;

use clap::Args;

use crate::cli::swarm::research::inspect::dreams::Dreams;
use crate::cli::swarm::research::inspect::patches::class_name;
use crate::cli::swarm::research::inspect::shown::{DnaView, Shown, number};
use crate::cli::swarm::research::inspect::{Globals, Looked, explain, open};
use crate::config::Precision;
use crate::inspect::Subject;
use crate::inspect::dna::{Compute, Ranks, TokenRoute, TokenRoutes, compute, flow, label, likeness, ranks};
use crate::inspect::plots::routes::{flow_image, text_image};
use crate::inspect::plots::{Labels, Series, chart, heat};
use crate::inspect::subject::InspectError;
use crate::model::{PathModel, initial_levels};
use crate::names::PathId;
use crate::seed::Seed;

/// Routes and tokens that people see; programs get all.
const ROWS: usize = 12;
/// Plotted tokens of a text.
const DRAWN: usize = 80;

/// `pathswarm inspect dna`
#[derive(Args)]
pub struct Dna {
    #[command(flatten)]
    looked: Looked,
    /// Another run with the same tokenizer, collected or of stopped peers, to compare its path.
    #[arg(long, value_name = "RUN")]
    against: Option<PathBuf>,
    /// A folder for plots, and a page with them.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show the tokens that take this route: a word for each step, modules as in the tables (T0+M4), skip for none, *
    /// for any.
    #[arg(long, value_name = "WAY")]
    follow: Option<String>,
    #[command(flatten)]
    dreams: Dreams,
}

impl Dna {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let machine = globals.machine_only()?;
        let (subject, config) = self.looked.subject(&machine)?;
        let dna = subject.config().dna.clone().ok_or_else(|| explain(InspectError::NoPool))?;
        let path = (!self.looked.ancestor).then_some(PathId(self.looked.path));
        let other = self.against.as_deref().map(|run| open(run, path, &machine)).transpose()?;
        let passages = self.looked.passages(&subject, &config, globals.output())?;
        let shown = Shown::new(globals.output(), self.out, self.looked.title("Routed modules", &config))?;
        let view = DnaView { subject: &subject, passages: &passages, dna: &dna, shown };
        let token_routes = TokenRoutes::of(&subject.model, &passages).map_err(explain)?;
        view.flow(&token_routes)?;
        let ranks = view.ranks(&token_routes)?;
        let computed = view.compute(&token_routes)?;
        if subject.config().reads_images() {
            view.images(&token_routes, &ranks, &computed)?;
        } else {
            view.text(&token_routes, &ranks)?;
        }
        self.follow.iter().try_for_each(|route| view.follow(route, &token_routes))?;
        self.dreams.show(&view)?;
        if let Some((other, _)) = &other {
            view.likeness(&token_routes, other)?;
        }
        view.shown.finish()
    }
}

/// An untrained network of the same sizes.
fn untrained(subject: &Subject) -> anyhow::Result<PathModel> {
    let levels = subject.levels();
    let model = subject.config();
    let mut path = PathModel::new(model, &levels, subject.model.device(), Precision::F32)?;
    for (level, values) in initial_levels(model, &levels, Seed::root(1)).iter().enumerate() {
        path.set_level(level, values)?;
    }
    Ok(path)
}

impl DnaView<'_> {
    fn flow(&self, token_routes: &TokenRoutes) -> anyhow::Result<()> {
        let found = flow(token_routes, self.dna);
        self.shown.event("flow", &found)?;
        let modules: Vec<String> = (0..self.dna.modules.count()).map(|module| label(module, self.dna)).collect();
        let head: Vec<&str> =
            ["step", "effective top-k"].into_iter().chain(modules.iter().map(String::as_str)).collect();
        let row = |(step, shares): (usize, &Vec<f64>)| {
            let shares = shares.iter().map(|share| format!("{:.1}%", 100.0 * share));
            [step.to_string(), format!("{:.2}", found.effective[step])].into_iter().chain(shares).collect()
        };
        let rows: Vec<Vec<String>> = found.shares.iter().enumerate().map(row).collect();
        self.shown.table("The effective top-k of the choices, and each module's share of them", &head, &rows)?;
        self.shown.line(&format!("{:.1}% of choices skip", 100.0 * found.skipped))?;
        self.shown.image("flow.svg", "Where tokens go from step to step", || flow_image(&found, self.dna))?;
        let labels = Labels { title: "Share of choices", x: "module", y: "step" };
        self.shown.image("shares.svg", "Share of choices by step and module", || heat(&labels, &found.shares))
    }

    fn ranks(&self, token_routes: &TokenRoutes) -> anyhow::Result<Ranks> {
        let found = ranks(token_routes, self.dna);
        let other = untrained(self.subject)?;
        let chance = ranks(&TokenRoutes::of(&other, self.passages).map_err(explain)?, self.dna);
        self.shown.event("routes", &serde_json::json!({ "trained": found, "untrained": chance }))?;
        let row = |route: &crate::inspect::dna::Route| {
            let tokens: Vec<String> = route.tokens.iter().map(|(token, _)| self.named(*token)).collect();
            let steps: Vec<String> = route.modules.iter().map(|step| self.together(step)).collect();
            vec![steps.join(" "), route.count.to_string(), tokens.join(" ")]
        };
        let rows: Vec<Vec<String>> = found.routes.iter().take(ROWS).map(row).collect();
        self.shown.table("The commonest routes, and their tokens", &["route", "tokens", "the commonest"], &rows)?;
        let exponent = |ranks: &Ranks| ranks.exponent.map_or_else(|| "too few".to_owned(), number);
        self.shown.line(&format!(
            "{} tokens take {} routes; count falls as rank to the power of -{}; untrained {} routes, -{}",
            found.tokens,
            found.routes.len(),
            exponent(&found),
            chance.routes.len(),
            exponent(&chance),
        ))?;
        let points = |ranks: &Ranks| -> Vec<(f64, f64)> {
            let routes = ranks.routes.iter().enumerate();
            routes.map(|(rank, route)| ((rank as f64 + 1.0).log10(), (route.count as f64).log10())).collect()
        };
        let series = [("trained", &found), ("untrained", &chance)];
        let series = series.map(|(name, ranks)| Series { name, points: points(ranks) });
        let labels = Labels { title: "Routes by rank", x: "log10 of rank", y: "log10 of tokens" };
        self.shown.image("routes.svg", "Routes by rank", || chart(&labels, &series, false))?;
        Ok(found)
    }

    fn together(&self, modules: &[u16]) -> String {
        let names: Vec<String> = modules.iter().map(|module| label(usize::from(*module), self.dna)).collect();
        if names.is_empty() { "skip".to_owned() } else { names.join("+") }
    }

    /// A token as text, or a patch's class.
    fn named(&self, token: u32) -> String {
        if self.subject.config().reads_images() {
            return class_name(self.passages, token);
        }
        format!("{:?}", self.subject.tokenizer.decode(&[token]))
    }

    /// The beginning of a sequence, or an image's class.
    fn beginning(&self, sequence: usize) -> String {
        let tokens = &self.passages.sequences[sequence];
        match tokens.last() {
            Some(class) if self.subject.config().reads_images() => class_name(self.passages, *class),
            _ => {
                let text = self.subject.tokenizer.decode(tokens);
                text.chars().filter(|character| !character.is_control()).take(60).collect()
            }
        }
    }

    fn compute(&self, token_routes: &TokenRoutes) -> anyhow::Result<Compute> {
        let found = compute(token_routes, self.subject.config(), self.passages);
        self.shown.event("compute", &found)?;
        let [low, middle, high] = found.quantiles;
        self.shown.line(&format!(
            "\nParameters that a token meets in the steps: {:.0} in the mean; 5% below {low:.0}, half below {middle:.0}, 5% \
             above {high:.0}",
            found.parameters
        ))?;
        let again = 100.0 * found.reused;
        let together = found.skips_and_reuse.map_or_else(|| "not defined".to_owned(), number);
        self.shown.line(&format!(
            "{again:.1}% of visits are to a module where the token has been; correlation with its skips: {together}"
        ))?;
        let rows: Vec<Vec<String>> = ["least", "middling", "most"]
            .iter()
            .zip(&found.examples)
            .flat_map(|(kind, sequences)| sequences.iter().map(move |sequence| (*kind, *sequence)))
            .map(|(kind, sequence)| {
                vec![kind.to_owned(), format!("{:.0}", found.by_sequence[sequence]), self.beginning(sequence)]
            })
            .collect();
        self.shown.table("Sequences by how much is computed for a token", &["", "parameters", "begins with"], &rows)?;
        Ok(found)
    }

    /// The first passage, token by token.
    fn text(&self, token_routes: &TokenRoutes, ranks: &Ranks) -> anyhow::Result<()> {
        let own: Vec<&TokenRoute> =
            token_routes.all.iter().take_while(|token_route| token_route.sequence == 0).take(DRAWN).collect();
        let shown = |token: u32| format!("{:?}", self.subject.tokenizer.decode(&[token])).trim_matches('"').to_owned();
        let tokens: Vec<(String, &TokenRoute, Option<usize>)> = own
            .iter()
            .map(|token_route| (shown(token_route.token), *token_route, ranks.of(token_route, self.dna)))
            .collect();
        let listed: Vec<serde_json::Value> = tokens
            .iter()
            .map(|(text, token_route, rank)| serde_json::json!({ "token": text, "chosen": token_route.chosen, "rank": rank }))
            .collect();
        self.shown.event("text", &listed)?;
        self.shown.image("text.svg", "The first text, each token with its route", || {
            text_image(&tokens, ranks.routes.len(), self.dna)
        })
    }

    fn likeness(&self, token_routes: &TokenRoutes, other: &Subject) -> anyhow::Result<()> {
        let others = TokenRoutes::of(&other.model, self.passages).map_err(explain)?;
        if others.all.len() != token_routes.all.len() {
            return Err(explain(InspectError::Differ("what is a token to them")));
        }
        let found = likeness((token_routes, self.subject.config()), (&others, other.config()));
        self.shown.event("likeness", &found)?;
        let show = |value: Option<f64>| value.map_or_else(|| "not defined".to_owned(), number);
        self.shown.line(&format!(
            "\nBetween the two networks, token by token: correlation of what is computed {}, of what is used again {}",
            show(found.compute),
            show(found.reuse)
        ))
    }
}
