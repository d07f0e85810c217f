//! Text that people and other processes hand to a peer: invitations, orders, what it keeps of bans, and on the command line
//! what is to be changed of a network.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::inspect::directional::interventions::Intervention;
use pathswarm::network::Ban;
use pathswarm::peer::access::invitation_token::{from_text, to_text};
use pathswarm::peer::driver::handle::Order;

fuzz_target!(|text: &str| {
    if let Ok(token) = from_text(text) {
        let again = to_text(&token).expect("it came in as few bytes");
        assert_eq!(from_text(&again).expect("what was written can be read"), token);
    }
    if let Ok(order) = serde_json::from_str::<Order>(text) {
        assert!(serde_json::to_string(&order).is_ok());
    }
    let _ = serde_json::from_str::<Result<String, String>>(text);
    let _ = serde_json::from_str::<Vec<Ban>>(text);
    let _ = text.parse::<Intervention>();
});
