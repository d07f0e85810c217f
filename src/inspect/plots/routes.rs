//! Plots of routes, as SVG.

use plotters::prelude::*;

use crate::config::{DnaConfig, ModuleKind};
use crate::inspect::dna::{Flow, TokenRoute, label};
use crate::inspect::plots::{Area, image_of, wrong};

const FLOW: (u32, u32) = (1000, 620);
/// Moves of a smaller share of tokens are not drawn.
const LEAST_MOVE: f64 = 0.002;

/// A module's colour: kinds differ in brightness, identities are grey.
fn colour(module: usize, dna: &DnaConfig) -> HSLColor {
    match dna.modules.kind(module) {
        ModuleKind::Identity => HSLColor(0.0, 0.0, 0.75),
        _ => HSLColor(module as f64 / dna.modules.computing().max(1) as f64, 0.65, 0.5),
    }
}

/// The flow of tokens through the modules: a column for each step with a bar for each module, as high as its share of
/// choices, and between columns bands as wide as the share of tokens that move.
pub fn flow_image(flow: &Flow, dna: &DnaConfig) -> anyhow::Result<String> {
    image_of(FLOW, |root| {
        let title = "Tokens' routes: share of choices by step and module";
        root.draw_text(title, &("sans-serif", 18).into_font().into(), (20, 14)).map_err(wrong)?;
        let columns: Vec<Vec<(i32, i32)>> = flow.shares.iter().map(|shares| stacked(shares)).collect();
        for (step, moves) in flow.moves.iter().enumerate() {
            bands(root, (step, dna), moves, [&columns[step], &columns[step + 1]])?;
        }
        for (step, bars) in columns.iter().enumerate() {
            let left = across(step, dna.steps);
            root.draw_text(&format!("step {step}"), &("sans-serif", 14).into_font().into(), (left - 8, 42))
                .map_err(wrong)?;
            for (module, (top, bottom)) in bars.iter().enumerate().filter(|(_, (top, bottom))| bottom > top) {
                let bar = Rectangle::new([(left, *top), (left + 26, *bottom)], colour(module, dna).filled());
                root.draw(&bar).map_err(wrong)?;
                if bottom - top > 12 {
                    let place = (left + 1, (top + bottom) / 2 - 6);
                    root.draw_text(&label(module, dna), &("sans-serif", 12).into_font().into(), place)
                        .map_err(wrong)?;
                }
            }
        }
        Ok(())
    })
}

fn across(step: usize, steps: usize) -> i32 {
    let room = FLOW.0 as i32 - 120;
    40 + room * step as i32 / (steps.max(2) as i32 - 1)
}

/// From top to bottom, the interval of each share.
fn stacked(shares: &[f64]) -> Vec<(i32, i32)> {
    let (first, height) = (64.0, f64::from(FLOW.1) - 100.0);
    let mut sum = 0.0;
    let place = |share: &f64| {
        let top = first + height * sum;
        sum += share;
        (top.round() as i32, (first + height * sum).round() as i32)
    };
    shares.iter().map(place).collect()
}

/// The bands between two columns. The shares of best modules may differ from those of all choices, so bands fill their
/// bars in proportion.
fn bands(
    root: &Area<'_>,
    (step, dna): (usize, &DnaConfig),
    moves: &[Vec<f64>],
    [from, to]: [&[(i32, i32)]; 2],
) -> anyhow::Result<()> {
    let (left, right) = (across(step, dna.steps) + 26, across(step + 1, dna.steps));
    let leaving: Vec<f64> = moves.iter().map(|row| row.iter().sum()).collect();
    let arriving: Vec<f64> = (0..to.len()).map(|module| moves.iter().map(|row| row[module]).sum()).collect();
    let mut arrived = vec![0.0; to.len()];
    for (module, row) in moves.iter().enumerate() {
        let mut left_over = 0.0;
        for (next, share) in row.iter().enumerate() {
            let piece = |(top, bottom): (i32, i32), before: f64, all: f64| {
                let height = f64::from(bottom - top);
                let at = |part: f64| top + (height * part / all.max(1e-12)).round() as i32;
                (at(before), at(before + share))
            };
            let begins = piece(from[module], left_over, leaving[module]);
            let ends = piece(to[next], arrived[next], arriving[next]);
            left_over += share;
            arrived[next] += share;
            if *share >= LEAST_MOVE {
                let corners = [(left, begins.0), (right, ends.0), (right, ends.1), (left, begins.1)];
                root.draw(&Polygon::new(corners, colour(module, dna).mix(0.35))).map_err(wrong)?;
            }
        }
    }
    Ok(())
}

/// One text, token by token: each row is a token, each column a step, coloured by the chosen modules; next to it the
/// rank of its route, darker if commoner.
pub fn text_image(
    tokens: &[(String, &TokenRoute, Option<usize>)],
    routes: usize,
    dna: &DnaConfig,
) -> anyhow::Result<String> {
    let (row, cell) = (18i32, 34i32);
    let height = 60 + row * tokens.len() as i32;
    let width = 260 + cell * dna.steps as i32 * dna.top_k as i32 + 20 * dna.steps as i32;
    image_of((width as u32, height as u32), |root| {
        let title = "token, rank of its route, and its choices step by step";
        root.draw_text(title, &("sans-serif", 15).into_font().into(), (10, 10)).map_err(wrong)?;
        for (number, (text, token_route, rank)) in tokens.iter().enumerate() {
            let top = 40 + row * number as i32;
            let share = rank.map_or(1.0, |rank| (rank as f64 + 1.0).ln() / (routes.max(2) as f64).ln());
            let ground = HSLColor(0.6, 0.6, 0.55 + 0.42 * share.clamp(0.0, 1.0));
            root.draw(&Rectangle::new([(10, top), (220, top + row - 2)], ground.filled())).map_err(wrong)?;
            let rank = rank.map_or_else(|| "-".to_owned(), |rank| (rank + 1).to_string());
            let font = || ("monospace", 12).into_font();
            root.draw_text(text, &font().into(), (14, top + 3)).map_err(wrong)?;
            root.draw_text(&rank, &font().into(), (182, top + 3)).map_err(wrong)?;
            for (step, chosen) in token_route.chosen.iter().enumerate() {
                for (place, module) in chosen.iter().map(|module| usize::from(*module)).enumerate() {
                    let left = 236 + (step as i32) * (cell * dna.top_k as i32 + 20) + cell * place as i32;
                    let area = [(left, top), (left + cell - 2, top + row - 2)];
                    root.draw(&Rectangle::new(area, colour(module, dna).filled())).map_err(wrong)?;
                    root.draw_text(&label(module, dna), &font().into(), (left + 3, top + 3)).map_err(wrong)?;
                }
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Pool;

    #[test]
    fn images_name_the_modules_that_tokens_chose() {
        let modules = Pool { transformer: 1, mlp: 1, identity: 1, ..Pool::default() };
        let dna = DnaConfig { modules, steps: 2, top_k: 1, skips: None, bias_rate: 1e-3, fixed_routers: false };
        let shares = vec![vec![0.5, 0.5, 0.0], vec![0.25, 0.25, 0.5]];
        let moves = vec![vec![vec![0.25, 0.0, 0.25], vec![0.0, 0.25, 0.25], vec![0.0; 3]]];
        let flow = Flow { shares, moves, effective: vec![1.0; 2], skipped: 0.25 };
        let image = flow_image(&flow, &dna).unwrap();
        assert!(image.contains("T0") && image.contains("M1") && image.contains("skip"));
        assert!(image.contains("<polygon"));
        let token_route = TokenRoute { token: 1, sequence: 0, position: 0, chosen: vec![vec![0], vec![2]] };
        let text = text_image(&[("word".to_owned(), &token_route, Some(0))], 5, &dna).unwrap();
        assert!(text.contains("word") && text.contains("T0") && text.contains("skip"));
    }
}
