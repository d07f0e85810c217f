//! The page about a device: whether it computes what the CPU computes, and how fast it trains, if wished beside PyTorch.

use std::time::Duration;

use anyhow::Context;

use super::finding::Finding;
use super::resources;
use super::torch::Reference;
use crate::config::{MachineConfig, Precision};
use crate::model::{Device, device_name, fused, matrix_flops_per_s, open_device, set_threads, threads};
use crate::training::device::{Agreement, DeviceCheckError, Mode, Rate, SIZES, Size, agreement, networks, rate};

/// The longest step that is measured, as estimated from the size before: with more, fewer sequences are taken.
const LONGEST_STEP_S: f64 = 3.0;

/// The share of the rate of matrix products that the smallest size is assumed to reach.
const ASSUMED_SHARE: f64 = 0.3;

/// Duration of a timed round.
const ROUND: Duration = Duration::from_millis(500);

/// The longest that PyTorch may take for one size, with its compiler.
const TORCH_LIMIT_S: u32 = 600;

/// The machine's device, and how it is measured.
pub struct Page<'a> {
    pub machine: &'a MachineConfig,
    /// How many sizes are measured.
    pub sizes: usize,
    /// A Python that can import torch.
    pub torch: Option<&'a str>,
}

impl Page<'_> {
    /// All findings, each given to `add` as soon as it is there.
    pub fn each(&self, add: &mut dyn FnMut(Vec<Finding>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        set_threads(self.machine.threads);
        add(resources::device(self.machine))?;
        let Ok(device) = open_device(self.machine.first_device()) else { return Ok(()) };
        for network in networks() {
            for mode in Mode::all(device) {
                add(vec![agrees(network.name, mode, agreement(&network, mode, device))])?;
            }
        }
        let precisions = if self.sizes == 0 { &[][..] } else { &[Precision::F32, Precision::Bf16] };
        for precision in precisions.iter().copied() {
            // The trainers of the comparison took all cores.
            set_threads(self.machine.threads);
            let peak = matrix_flops_per_s(precision, device).context("products of matrices")?;
            let word = precision_word(precision);
            let found = format!("{:.1} TFLOP/s in {word}", peak / 1e12);
            add(vec![Finding::good("matrix products", found).with("flops_per_s", peak).with("precision", word)])?;
            for mode in Mode::all(device).into_iter().filter(|mode| mode.precision == precision) {
                self.sizes(mode, device, peak, add)?;
            }
        }
        Ok(())
    }

    /// The rates of all sizes that are not too slow here.
    fn sizes(
        &self,
        mode: Mode,
        device: Device,
        peak: f64,
        add: &mut dyn FnMut(Vec<Finding>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut flops_per_s = peak * ASSUMED_SHARE;
        for size in SIZES.into_iter().take(self.sizes) {
            let about = format!("{} in {}", size.name, word(mode));
            let sequence_s = size.flops_per_token() * size.context as f64 / flops_per_s;
            let sequences = ((LONGEST_STEP_S / sequence_s) as usize).min(size.sequences);
            if sequences == 0 {
                let found = format!("{about}: a step of one sequence takes about {sequence_s:.0} s");
                return add(vec![Finding::poor("rate", found, "larger networks are not measured here")]);
            }
            match rate(&size, sequences, (&mode.of(self.machine), device), ROUND) {
                Ok(measured) => {
                    flops_per_s = measured.tokens_per_s * size.flops_per_token();
                    add(vec![self.measured(&size, &measured, (mode, device), (flops_per_s, peak))])?;
                }
                Err(error) => {
                    let remedy = "if memory ran out, this network is too large here; larger ones are not measured";
                    return add(vec![Finding::poor("rate", format!("{about}: {error}"), remedy)]);
                }
            }
        }
        Ok(())
    }

    /// What was measured at one size, beside PyTorch if there is one.
    fn measured(
        &self,
        size: &Size,
        Rate { parameters, sequences, tokens_per_s, spread: [least, most], peak_bytes }: &Rate,
        (mode, device): (Mode, Device),
        (flops_per_s, peak): (f64, f64),
    ) -> Finding {
        let (name, precision) = (size.name, precision_word(mode.precision));
        let (context, share) = (size.context, flops_per_s / peak);
        let mut found = format!(
            "{name} in {}: {tokens_per_s:.0} tokens/s ({least:.0}-{most:.0}) with {sequences} x {context} tokens a \
             step, {:.2} TFLOP/s, {:.0}% of matrix products",
            word(mode),
            flops_per_s / 1e12,
            share * 100.0
        );
        let mut values = Finding::good("rate", "")
            .with("size", name)
            .with("precision", precision)
            .with("fused_kernels", mode.fused)
            .with("parameters", *parameters)
            .with("sequences", *sequences)
            .with("tokens_per_s", *tokens_per_s)
            .with("spread", vec![*least, *most])
            .with("share_of_products", share);
        if let Some(bytes) = peak_bytes {
            found = format!("{found}, {:.2} GB of memory", bytes.allocated as f64 / 1e9);
            values = values.with("allocated_bytes", bytes.allocated).with("reserved_bytes", bytes.reserved);
        }
        let references = [("torch_eager", "eager PyTorch", false), ("torch_compiled", "compiled PyTorch", true)];
        // PyTorch is measured once for a precision.
        for (key, what, compiled) in self.torch.iter().filter(|_| !mode.fused).flat_map(|_| references) {
            let python = self.torch.unwrap_or_default();
            // What this process keeps would be missing there. Where it cannot be given back, PyTorch says so.
            let _ = fused::empty_cache(device);
            let device = device_name(device);
            let reference =
                Reference { python, device: &device, precision, threads: threads(), limit_s: TORCH_LIMIT_S };
            match reference.tokens_per_s(size, *sequences, compiled) {
                Ok(theirs) => {
                    found = format!("{found}; {what} {theirs:.0}, ratio {:.2}", tokens_per_s / theirs);
                    values = values.with(&format!("{key}_tokens_per_s"), theirs);
                }
                Err(error) => found = format!("{found}; {what}: {error:#}"),
            }
        }
        values.said(found)
    }
}

fn word(mode: Mode) -> &'static str {
    if mode.fused { "bf16 with this program's kernels" } else { precision_word(mode.precision) }
}

fn precision_word(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
    }
}

/// Whether the device computes what the CPU computes.
fn agrees(network: &str, mode: Mode, found: Result<Vec<Agreement>, DeviceCheckError>) -> Finding {
    let about = format!("{network} in {}", word(mode));
    let remedy = "results of this device cannot be trusted: report this page, and take device = \"cpu\" until then";
    let all = match found {
        Ok(all) => all,
        Err(error) => return Finding::wrong("agreement", format!("{about}: {error}"), remedy),
    };
    let each: Vec<String> = all.iter().map(|one| format!("{} {:.1e}", one.what, one.difference)).collect();
    let mut finding = Finding::good("agreement", format!("{about}: {} from the CPU's", each.join(", ")));
    if let Some(wrong) = all.iter().find(|one| !one.holds()) {
        let found = format!(
            "{about}: the {} is {:.1e} from the CPU's, more than {:.0e}; all: {}",
            wrong.what,
            wrong.difference,
            wrong.limit,
            each.join(", ")
        );
        finding = Finding::wrong("agreement", found, remedy);
    }
    let values =
        all.iter().fold(finding.with("network", network), |finding, one| finding.with(one.what, one.difference));
    values.with("precision", precision_word(mode.precision)).with("fused_kernels", mode.fused)
}
