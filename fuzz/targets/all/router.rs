//! The router, and its state where the text is shared out anew. Behind it: how many paths and features there are, a byte
//! each.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::routing::Router;
use pathswarm::routing::resharding::RouterState;

/// Routing takes a product of widths and paths: of what is larger, decoding is enough.
const MOST_ROUTED: usize = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let Some((bytes, [paths, width])) = input.split_last_chunk() else { return };
    let (paths, width) = (u32::from(*paths), usize::from(*width));
    if let Ok(router) = Router::decode(bytes) {
        assert_eq!(router.encode(), bytes);
        let _ = router.check(paths, width, 8);
        if router.paths() as usize * router.width().max(1) <= MOST_ROUTED {
            let features = vec![0.25; router.width()];
            assert!(router.route(&features, &[1, 2]).0 < router.paths());
            assert!(!router.top(&features, &[1, 2], 2).is_empty());
        }
    }
    if let Ok(state) = RouterState::decode(bytes, paths, width, 8) {
        assert_eq!(state.encode(width), bytes);
    }
});
