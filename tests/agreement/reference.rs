//! Scripts in Python that need `transformers`, as scripts/reference installs it.

use std::path::Path;
use std::process::Command;

/// Runs a script with these arguments. Says so where it, or the package that it needs besides, is not installed.
pub fn transformers(script: &str, package: Option<&str>, arguments: &[String]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (packages, cuda) = (root.join(".venv"), root.join(".venv/without-cuda"));
    if !(cuda.join("complete").exists() && package.is_none_or(|package| packages.join(package).exists())) {
        eprintln!("skipped: scripts/reference has not installed what {script} needs");
        return;
    }
    let paths = std::env::join_paths([packages, root.join(".libtorch/site")]).unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut python = Command::new("python3");
    python
        .env("PYTHONPATH", paths)
        .env("LD_LIBRARY_PATH", cuda)
        .env("HF_HOME", home.path())
        .env("HF_HUB_OFFLINE", "1")
        .env("OMP_NUM_THREADS", "1");
    let output = python.arg(root.join(script)).args(arguments).output().unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{wrong}");
    println!("{said}");
}
