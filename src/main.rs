//! The program: everything is in `cli`.

fn main() {}
