//! Tasks that go on after a panic: those that others can do without for a second.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;

/// From a panic to the next attempt. One that panics at once each time must not take the processor.
const PAUSE: Duration = Duration::from_secs(1);

/// Carries out one attempt at a task. Returns whether it has come to its end; otherwise it panicked, which the program's hook has
/// told, and may be attempted again.
pub async fn ended(attempt: impl Future<Output = ()>) -> bool {
    let ended = AssertUnwindSafe(attempt).catch_unwind().await.is_ok();
    if !ended {
        tokio::time::sleep(PAUSE).await;
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_attempted_again_until_it_ends() {
        let mut attempts = 0;
        while !ended(async {
            attempts += 1;
            assert!(attempts == 2, "attempt {attempts}");
        })
        .await
        {}
        assert_eq!(attempts, 2);
    }
}
