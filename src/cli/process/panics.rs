//! Panics: each is a defect, and goes to the log with its backtrace, whichever thread it ends.

use std::backtrace::Backtrace;

use super::signals;

/// Reports panics from now on. Does not wait for anybody who reads standard error.
pub fn install() {
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::force_capture();
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name");
        let what = panic.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        tracing::error!("a defect: thread {thread} {what}\n{backtrace}");
        let place = match tracing::dispatcher::has_been_set() {
            true => "please report it with pathswarm.log in the run's folder, which has the backtrace".to_owned(),
            false => format!("its backtrace:\n{backtrace}"),
        };
        signals::tell(&format!("a defect: thread {thread} {what}; {place}\n"));
    }));
}
