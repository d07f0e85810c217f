//! Plain PyTorch at the shapes that the program is measured at, in a Python of the user's.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use crate::training::device::Size;

/// `nn.Module`, `torch.optim.AdamW`, and if wished `torch.compile`.
const PROGRAM: &str = include_str!("torch_reference.py");

/// How PyTorch is to train.
pub struct Reference<'a> {
    /// A Python that can import torch.
    pub python: &'a str,
    /// `cpu`, or `cuda` with the index of a card.
    pub device: &'a str,
    /// `f32` or `bf16`.
    pub precision: &'a str,
    pub threads: usize,
    /// The longest that it may take, with its compiler.
    pub limit_s: u32,
}

impl Reference<'_> {
    /// Tokens per second of the median round; `compiled` with `torch.compile` and a fused AdamW.
    ///
    /// # Errors
    /// If Python, torch or its compiler is missing, with the last line of what was said.
    pub fn tokens_per_s(&self, size: &Size, sequences: usize, compiled: bool) -> anyhow::Result<f64> {
        let Self { python, device, precision, threads, limit_s } = *self;
        let mut command = Command::new(python);
        command.args(["-c", PROGRAM]).env("PATHSWARM_LIMIT_S", limit_s.to_string());
        command.arg(format!("--device={device}")).arg(format!("--precision={precision}"));
        for (key, value) in [
            ("blocks", size.blocks),
            ("width", size.width),
            ("heads", size.heads),
            ("vocabulary", size.vocabulary),
            ("context", size.context),
            ("batch", sequences),
            ("threads", threads),
        ] {
            command.arg(format!("--{key}={value}"));
        }
        if compiled {
            command.args(["--compile", "--fused"]);
        }
        let output = command.output().with_context(|| format!("cannot start {python}"))?;
        if output.status.signal() == Some(libc::SIGALRM) {
            anyhow::bail!("it took longer than {limit_s} s");
        }
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            anyhow::bail!("{}", said.trim().lines().last().unwrap_or("it said nothing"));
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let report: Value = serde_json::from_str(said.lines().last().context("it printed nothing")?)?;
        report["median_tokens_per_second"].as_f64().context("it printed no rate")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::training::device::SIZES;

    #[test]
    fn a_python_that_is_not_there_or_fails_is_named_with_what_it_said() {
        let said = |python| {
            let reference = Reference { python, device: "cpu", precision: "f32", threads: 1, limit_s: 60 };
            format!("{:#}", reference.tokens_per_s(&SIZES[0], 1, false).unwrap_err())
        };
        assert!(said("/nowhere/python").contains("cannot start /nowhere/python"));
        assert!(said("true").contains("it printed nothing"));
        assert!(said("false").contains("it said nothing"));
    }
    #[test]
    fn a_python_that_hangs_is_ended_at_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("torch.py"), "import time\nwhile True: time.sleep(1)\n").unwrap();
        let python = folder.path().join("python");
        let script = format!("#!/bin/sh\nPYTHONPATH={} exec python3 \"$@\"\n", folder.path().display());
        std::fs::write(&python, script).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        let python = python.to_str().unwrap();
        let reference = Reference { python, device: "cpu", precision: "f32", threads: 1, limit_s: 1 };
        let said = reference.tokens_per_s(&SIZES[0], 1, false).unwrap_err().to_string();
        assert_eq!(said, "it took longer than 1 s");
    }
}
