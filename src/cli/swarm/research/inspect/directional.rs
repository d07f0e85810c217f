//! `pathswarm inspect directional`

use std::path::PathBuf;

use clap::Args;

use crate::cli::mistake::{Mistake, OrMistake};
use crate::cli::swarm::research::inspect::shown::{Shown, number};
use crate::cli::swarm::research::inspect::{Globals, Looked, explain, open};
use crate::inspect::directional::attribution::{Share, attribute};
use crate::inspect::directional::distribution::{distribution, mean_weights};
use crate::inspect::directional::domains::domains;
use crate::inspect::directional::effects::{Effect, effects};
use crate::inspect::directional::induction::induction;
use crate::inspect::directional::interventions::Intervention;
use crate::inspect::directional::similarity::{similarity, sureness};
use crate::inspect::directional::vocabulary::vocabulary;
use crate::inspect::plots::{Labels, Series, bars, chart, heat};
use crate::inspect::subject::InspectError;
use crate::inspect::{Passages, Subject};
use crate::names::PathId;

/// Rows of a table that people see; programs get all.
const ROWS: usize = 12;

/// `pathswarm inspect directional`
#[derive(Args)]
pub struct Directional {
    #[command(flatten)]
    looked: Looked,
    /// Replace the outputs of routers and heads, such as `layer=1:off`, `head=0:0.25` or `layer=0,head=2:silent`; may
    /// be given several times.
    #[arg(long, value_name = "CHANGE")]
    intervene: Vec<String>,
    /// A text whose next token's logit is decomposed.
    #[arg(long, value_name = "TEXT", requires = "target")]
    prompt: Option<String>,
    /// That token: the first of this text.
    #[arg(long, value_name = "TEXT", requires = "prompt")]
    target: Option<String>,
    /// Another run with the same tokenizer, collected or of stopped peers, to compare its path.
    #[arg(long, value_name = "RUN")]
    against: Option<PathBuf>,
    /// A folder for plots, and a page with them.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

struct Looking<'a> {
    subject: &'a Subject,
    passages: &'a Passages,
    shown: Shown,
}

impl Directional {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let machine = globals.machine_only()?;
        let (subject, config) = self.looked.subject(&machine)?;
        if subject.config().directional.is_none() {
            return Err(explain(InspectError::Plain));
        }
        let read = |text: &String| -> Result<_, InspectError> {
            let intervention: Intervention = text.parse()?;
            intervention.check(subject.config())?;
            Ok((text.clone(), intervention))
        };
        let asked = self.intervene.iter().map(read).collect::<Result<Vec<_>, _>>().map_err(explain)?;
        let asked_of = self.prompt.as_deref().zip(self.target.as_deref());
        let prompt = asked_of.map(|(prompt, target)| prompted(&subject, prompt, target)).transpose()?;
        let path = (!self.looked.ancestor).then_some(PathId(self.looked.path));
        let other = self.against.as_deref().map(|run| open(run, path, &machine)).transpose()?;
        let passages = self.looked.passages(&subject, &config, globals.output())?;
        let shown = Shown::new(globals.output(), self.out, self.looked.title("Directional attention", &config))?;
        let looking = Looking { subject: &subject, passages: &passages, shown };
        looking.effects(&asked)?;
        looking.induction()?;
        looking.distribution()?;
        looking.domains()?;
        looking.vocabulary()?;
        if let Some((prompt, target)) = &prompt {
            looking.attribution(prompt, *target)?;
        }
        match &other {
            None => {
                let sure = sureness(&subject, &passages).map_err(explain)?;
                looking.shown.event("sureness", &sure)?;
                let (entropy, top) = (sure.entropy, sure.top_probability);
                looking.shown.line(&format!(
                    "\nPredictions have an entropy of {entropy:.3} nats; the likeliest token has a probability of {top:.3}"
                ))?;
            }
            Some((other, _)) => looking.similarity(other)?,
        }
        looking.shown.finish()
    }
}

/// The tokens of a prompt, and the token whose logit is decomposed.
fn prompted(subject: &Subject, prompt: &str, target: &str) -> anyhow::Result<(Vec<u32>, u32)> {
    let (prompt, target) = (subject.tokenizer.encode(prompt)?, subject.tokenizer.encode(target)?);
    let target = target.first().copied().ok_or("--target is empty").or_mistake("give a token's text")?;
    let context = subject.config().context;
    if prompt.is_empty() || prompt.len() > context {
        let message = format!("--prompt has {} tokens", prompt.len());
        return Err(Mistake::new(message).hint(format!("give one of 1 to {context} tokens")).into());
    }
    Ok((prompt, target))
}

fn effect_rows(effects: &[Effect]) -> Vec<Vec<String>> {
    let row = |effect: &Effect| vec![effect.change.clone(), number(effect.perplexity), number(effect.more_nats)];
    effects.iter().map(row).collect()
}

fn share_rows(shares: &[Share]) -> Vec<Vec<String>> {
    shares.iter().map(|share| vec![share.part.clone(), number(share.logit)]).collect()
}

/// The largest first, as many as are shown.
fn largest(effects: &[Effect]) -> Vec<Effect> {
    let mut sorted = effects.to_vec();
    sorted.sort_by(|a, b| b.more_nats.abs().total_cmp(&a.more_nats.abs()));
    sorted.truncate(ROWS);
    sorted
}

const EFFECT: [&str; 3] = ["", "perplexity", "nats more"];

impl Looking<'_> {
    fn effects(&self, asked: &[(String, Intervention)]) -> anyhow::Result<()> {
        let found = effects(self.subject, self.passages, asked).map_err(explain)?;
        let shown = &self.shown;
        shown.event("effects", &found)?;
        shown.table("Weights of routing, everywhere", &EFFECT, &effect_rows(&found.everywhere))?;
        shown.table("Routing of one layer off", &EFFECT, &effect_rows(&found.layers_off))?;
        let ratio = found.additivity;
        shown.line(&format!("one by one they cost {ratio:.2} times what they cost at once (1: they add up)"))?;
        shown.table(
            "Routing of one head off, the largest effects",
            &EFFECT,
            &effect_rows(&largest(&found.heads_off)),
        )?;
        shown.table("One head silent, the largest effects", &EFFECT, &effect_rows(&largest(&found.heads_silent)))?;
        if let Some(others) = &found.others_weights {
            shown.table("Another document's weights", &EFFECT, &effect_rows(std::slice::from_ref(others)))?;
        }
        if !found.asked.is_empty() {
            shown.table("As asked for", &EFFECT, &effect_rows(&found.asked))?;
        }
        let (swapped, replaced) = (found.sensitivity.swapped, found.sensitivity.replaced);
        shown.line(&format!(
            "\nA weight changes by {swapped:.4} if one in ten neighbours are swapped, by {replaced:.4} if one in ten tokens is \
             another"
        ))?;
        let more = |effects: &[Effect]| -> Vec<(String, f64)> {
            effects.iter().map(|effect| (effect.change.clone(), effect.more_nats)).collect()
        };
        let labels = |title| Labels { title, x: "nats a token more than as trained", y: "" };
        let all = [&found.everywhere[1..], &found.layers_off[..]].concat();
        shown.image("interventions.svg", "What the text costs with other weights of routing", || {
            bars(&labels("Weights of routing put in place of the routers'"), &more(&all))
        })?;
        let heads = self.subject.config().heads;
        let by_head = |effects: &[Effect]| -> Vec<Vec<f64>> {
            effects.chunks(heads).map(|layer| layer.iter().map(|effect| effect.more_nats).collect()).collect()
        };
        let labels = |title| Labels { title, x: "head", y: "layer" };
        let off = by_head(&found.heads_off);
        shown.image("heads-off.svg", "What the text costs with one head's routing off", || {
            heat(&labels("Nats more with a head's routing off"), &off)
        })?;
        let silent = by_head(&found.heads_silent);
        shown.image("heads-silent.svg", "What the text costs with one head silent", || {
            heat(&labels("Nats more with a head silent"), &silent)
        })
    }

    fn induction(&self) -> anyhow::Result<()> {
        let found = induction(self.subject).map_err(explain)?;
        self.shown.event("induction", &found)?;
        let row = |one: &crate::inspect::directional::induction::Accuracy| {
            let [low, high] = one.interval;
            vec![one.change.clone(), number(one.accuracy), format!("{low:.4} to {high:.4}"), number(one.nats)]
        };
        let rows: Vec<Vec<String>> = found.iter().map(row).collect();
        self.shown.table(
            "Random tokens read again: is the next one known?",
            &["", "accuracy", "95%", "nats"],
            &rows,
        )?;
        let values: Vec<(String, f64)> = found.iter().map(|one| (one.change.clone(), one.accuracy)).collect();
        let labels = Labels { title: "Random tokens read again", x: "share that is found likeliest", y: "" };
        self.shown
            .image("induction.svg", "How many random tokens that are read again are known", || bars(&labels, &values))
    }

    fn distribution(&self) -> anyhow::Result<()> {
        let found = distribution(self.subject, self.passages).map_err(explain)?;
        let shown = &self.shown;
        shown.event("distribution", &found)?;
        let rows: Vec<Vec<String>> = found
            .layers
            .iter()
            .enumerate()
            .map(|(layer, of)| {
                let between = of.between_domains.map_or_else(|| "-".to_owned(), |variance| format!("{variance:.6}"));
                let quantiles = of.quantiles.map(|value| format!("{value:.2}")).join(" ");
                vec![format!("layer {layer}"), number(of.mean), number(of.deviation), quantiles, between]
            })
            .collect();
        let columns = ["", "mean", "deviation", "5 25 50 75 95%", "variance between domains"];
        shown.table("Weights by layer", &columns, &rows)?;
        let rows: Vec<Vec<String>> = found
            .specialists
            .iter()
            .take(ROWS)
            .map(|head| {
                let by_domain: Vec<String> =
                    head.by_domain.iter().map(|(name, mean)| format!("{name} {mean:.3}")).collect();
                let name = format!("layer {}, head {}", head.layer, head.head);
                vec![name, format!("{:.6}", head.between_domains), by_domain.join(", ")]
            })
            .collect();
        if !rows.is_empty() {
            shown.table(
                "Specialists: heads whose weights differ most between domains",
                &["", "variance", "means"],
                &rows,
            )?;
        }
        let rows: Vec<Vec<String>> = found
            .benefit
            .iter()
            .map(|benefit| vec![format!("{} to {}", benefit.from, benefit.to - 1), number(benefit.nats)])
            .collect();
        shown.table("Nats that routing saves, by position", &["position", "nats"], &rows)?;
        let series = |name, pick: &dyn Fn(&[f64; 5]) -> f64| Series {
            name,
            points: found.layers.iter().enumerate().map(|(layer, of)| (layer as f64, pick(&of.quantiles))).collect(),
        };
        let lines = [
            series("5%", &|of| of[0]),
            series("25%", &|of| of[1]),
            series("median", &|of| of[2]),
            series("75%", &|of| of[3]),
            series("95%", &|of| of[4]),
        ];
        let labels = Labels { title: "Weights of routing", x: "layer", y: "weight" };
        shown.image("weights.svg", "Weights of routing by layer", || chart(&labels, &lines, true))?;
        let points =
            found.benefit.iter().map(|benefit| ((benefit.from + benefit.to) as f64 / 2.0, benefit.nats)).collect();
        let labels = Labels { title: "What routing saves", x: "position", y: "nats a token" };
        shown.image("benefit.svg", "What routing saves, by position", || {
            chart(&labels, &[Series { name: "off - as trained", points }], true)
        })
    }

    fn domains(&self) -> anyhow::Result<()> {
        let weights = mean_weights(self.subject, self.passages).map_err(explain)?;
        let Some(found) = domains(self.passages, &weights).map_err(explain)? else {
            return self
                .shown
                .line("\nDomains: the text does not name two or more domains, so they cannot be compared");
        };
        self.shown.event("domains", &found)?;
        let guesses = &found.guesses;
        let [low, high] = guesses.interval;
        self.shown.line(&format!(
            "\nThe domain of {} documents is guessed by the nearest of the means of {} others: {:.3} right ({low:.3} to {high:.3}), \
             {:.3} if it is always the commonest",
            guesses.guessed, guesses.learnt, guesses.accuracy, guesses.chance
        ))?;
        let series: Vec<Series<'_>> = self
            .passages
            .names
            .iter()
            .map(|name| {
                let own = found.points.iter().filter(|point| point.domain == *name);
                Series { name, points: own.map(|point| (point.at[0], point.at[1])).collect() }
            })
            .collect();
        let [first, second] = found.explained.map(|share| format!("{:.0}% of the variance", 100.0 * share));
        let labels = Labels { title: "Documents by their mean weights", x: &first, y: &second };
        self.shown.image("domains.svg", "Documents by their mean weights, a colour for each domain", || {
            chart(&labels, &series, false)
        })
    }

    fn vocabulary(&self) -> anyhow::Result<()> {
        let found = vocabulary(self.subject).map_err(explain)?;
        self.shown.event("vocabulary", &found)?;
        let row = |direction: &crate::inspect::directional::vocabulary::Direction| {
            let tokens: Vec<String> = direction.tokens.iter().map(|(token, _)| format!("{token:?}")).collect();
            vec![format!("{}.{}.{}", direction.layer, direction.head, direction.direction), tokens.join(" ")]
        };
        let rows: Vec<Vec<String>> = found.directions.iter().take(ROWS).map(row).collect();
        self.shown.table(
            "Tokens that directions speak for (layer.head.direction), the first ones",
            &["", ""],
            &rows,
        )?;
        let mean = |pick: &dyn Fn(&crate::inspect::directional::vocabulary::Head) -> f64| {
            found.heads.iter().map(pick).sum::<f64>() / found.heads.len() as f64
        };
        let (cosine, rank) = (mean(&|head| head.cosine), mean(&|head| head.effective_rank));
        let [random_cosine, random_rank] = found.random;
        self.shown.line(&format!(
            "\nDirections of a head have a mean |cosine| of {cosine:.3} (random ones {random_cosine:.3}) and amount to {rank:.2} \
             (random ones to {random_rank:.2})"
        ))?;
        let heads = self.subject.config().heads;
        let cosines: Vec<Vec<f64>> =
            found.heads.chunks(heads).map(|layer| layer.iter().map(|head| head.cosine).collect()).collect();
        let labels = Labels { title: "Mean |cosine| between a head's directions", x: "head", y: "layer" };
        self.shown.image("angles.svg", "Mean |cosine| between a head's directions", || heat(&labels, &cosines))
    }

    fn attribution(&self, prompt: &[u32], target: u32) -> anyhow::Result<()> {
        let found = attribute(self.subject, prompt, target).map_err(explain)?;
        self.shown.event("attribution", &found)?;
        let title = format!("{:?} next: logit {:.4}, probability {:.4}", found.target, found.logit, found.probability);
        self.shown.table(&title, &["", "logit"], &share_rows(&found.parts))?;
        self.shown.table(
            "Heads with the largest output, before routing",
            &["", "logit"],
            &share_rows(&found.top_heads),
        )?;
        let values: Vec<(String, f64)> = found.parts.iter().map(|share| (share.part.clone(), share.logit)).collect();
        let labels = Labels { title: &title, x: "logit", y: "" };
        self.shown.image("attribution.svg", "Parts of the token's logit", || bars(&labels, &values))
    }

    fn similarity(&self, other: &Subject) -> anyhow::Result<()> {
        let found = similarity(self.subject, other, self.passages).map_err(explain)?;
        self.shown.event("similarity", &found)?;
        let rows = found.layers.iter().enumerate().map(|(layer, cka)| vec![format!("layer {layer}"), number(*cka)]);
        self.shown.table(
            "How much alike both see the text (linear CKA)",
            &["", "0 to 1"],
            &rows.collect::<Vec<_>>(),
        )?;
        for (name, sure) in ["this one", "the other"].into_iter().zip(found.sureness) {
            let (entropy, top) = (sure.entropy, sure.top_probability);
            self.shown.line(&format!("{name}: entropy {entropy:.3} nats, likeliest token {top:.3}"))?;
        }
        let points = found.layers.iter().enumerate().map(|(layer, cka)| (layer as f64, *cka)).collect();
        let labels = Labels { title: "Two checkpoints on one text", x: "layer", y: "linear CKA" };
        self.shown.image("similarity.svg", "How much alike both see the text, by layer", || {
            chart(&labels, &[Series { name: "", points }], true)
        })
    }
}
