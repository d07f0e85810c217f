//! Tells the linker where libtorch is at run time, so that the program starts without `LD_LIBRARY_PATH`, and the
//! program which platform it is for.

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
    // scripts/libtorch makes a folder of links; the libraries find the nvidia ones relative to where they really are.
    let library = Path::new(&libtorch).join("lib/libtorch_cpu.so");
    match library.canonicalize() {
        Ok(real) => {
            let folder = real.parent().unwrap_or(Path::new("/"));
            println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
        }
        Err(error) => println!("cargo:warning={}: {error}: run scripts/libtorch first", library.display()),
    }
    #[cfg(feature = "learning")]
    compile(Path::new(&libtorch));
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
