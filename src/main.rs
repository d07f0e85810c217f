//! The program: everything is in `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    pathswarm::cli::main()
}
