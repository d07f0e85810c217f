//! Tells the linker where libtorch is at run time, so that the program starts without `LD_LIBRARY_PATH`, and the
//! program which platform it is for. With `PATHSWARM_WHEEL` (pyproject.toml sets it) that is not the libtorch of this machine,
//! but that of the Python environment in which the program will be installed.

use std::path::Path;

/// What libtorch offers and tch does not, and kernels for cards.
#[cfg(feature = "learning")]
const SOURCES: [&str; 4] = [
    "src/model/torch.cpp",
    "src/model/kernels/cuda.cpp",
    "src/model/kernels/functions.cpp",
    "src/model/kernels/on_cpu.cpp",
];

/// What these include.
#[cfg(feature = "learning")]
const INCLUDED: [&str; 3] =
    ["src/model/kernels/kernels.cu", "src/model/kernels/launch.h", "src/model/kernels/reported.h"];

/// Versions of Python for which there are wheels of torch 2.11; of several in one environment, the newest is taken.
const PYTHONS: [&str; 7] = ["3.14", "3.14t", "3.13", "3.13t", "3.12", "3.11", "3.10"];

fn main() {
    // The default corpus is the sources of the dependencies, which differ between platforms.
    if let Some(target) = std::env::var_os("TARGET") {
        println!("cargo:rustc-env=BUILT_FOR_TARGET={}", target.display());
    }
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    if std::env::var_os("CARGO_FEATURE_LEARNING").is_none() {
        return;
    }
    let Some(libtorch) = std::env::var_os("LIBTORCH") else {
        println!("cargo:warning=LIBTORCH is not set: run scripts/libtorch first");
        return;
    };
    if !is_apple() {
        // libtorch wants CUDA's libraries, which are not among those that are linked: GNU's linker would look for them.
        println!("cargo:rustc-link-arg=-Wl,--allow-shlib-undefined");
    }
    println!("cargo:rerun-if-env-changed=PATHSWARM_WHEEL");
    if std::env::var_os("PATHSWARM_WHEEL").is_some_and(|wheel| !wheel.is_empty()) {
        find_in_environment();
    } else {
        find_here(Path::new(&libtorch));
    }
    #[cfg(feature = "learning")]
    compile(Path::new(&libtorch));
}

fn is_apple() -> bool {
    std::env::var("CARGO_CFG_TARGET_VENDOR").is_ok_and(|vendor| vendor == "apple")
}

/// The program takes the libtorch of this machine.
fn find_here(libtorch: &Path) {
    // scripts/libtorch makes a folder of links; the libraries find the nvidia ones relative to where they really are.
    let library = libtorch.join("lib").join(if is_apple() { "libtorch_cpu.dylib" } else { "libtorch_cpu.so" });
    match library.canonicalize() {
        Ok(real) => {
            let folder = real.parent().unwrap_or(Path::new("/"));
            println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
        }
        Err(error) => println!("cargo:warning={}: {error}: run scripts/libtorch first", library.display()),
    }
}

/// The program takes the libtorch of the environment into whose `bin` it is installed.
fn find_in_environment() {
    let apple = is_apple();
    let here = if apple { "@loader_path" } else { "$ORIGIN" };
    if !apple {
        // As DT_RUNPATH, so that LD_LIBRARY_PATH can lead to another libtorch.
        println!("cargo:rustc-link-arg=-Wl,--enable-new-dtags");
    }
    // Debian has dist-packages outside of virtual environments, Fedora lib64.
    let kinds: &[_] = if apple {
        &[("lib", "site-packages")]
    } else {
        &[("lib", "site-packages"), ("lib64", "site-packages"), ("lib", "dist-packages")]
    };
    for (library, packages) in kinds {
        for python in PYTHONS {
            println!("cargo:rustc-link-arg=-Wl,-rpath,{here}/../{library}/python{python}/{packages}/torch/lib");
        }
    }
    // pip install --target.
    println!("cargo:rustc-link-arg=-Wl,-rpath,{here}/../torch/lib");
}

/// With the headers of the libtorch that torch-sys takes, and its flags.
#[cfg(feature = "learning")]
fn compile(libtorch: &Path) {
    for source in SOURCES.iter().chain(&INCLUDED) {
        println!("cargo:rerun-if-changed={source}");
    }
    let standard = if cfg!(windows) { "/std:c++17" } else { "-std=c++17" };
    let mut build = cc::Build::new();
    build.cpp(true).pic(true).warnings(false).flag(standard).files(SOURCES);
    // The second has what a function needs to have a gradient.
    build.include(libtorch.join("include")).include(libtorch.join("include/torch/csrc/api/include"));
    build.compile("pathswarm-torch");
}
