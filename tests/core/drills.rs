//! The drills of configs/drills. Whatever the faults, `drill` checks for every seed that all states agree at the end,
//! no contribution is counted twice, and none is lost silently. These tests check what else the drills guarantee, and
//! that the intended faults occur.

use std::path::Path;
use std::sync::Arc;

use pathswarm::config::{Codec, Rescale, SampleConfig, Streaming};
use pathswarm::grid::Sharing;
use pathswarm::protocol::limits::HEARTBEAT_MS;
use pathswarm::simulator::counts::median;
use pathswarm::simulator::drill::{Summary, drill};
use pathswarm::simulator::scenario::faults::{FaultSchedule, Kind};
use pathswarm::simulator::{Scenario, Trace, run, run_traced};

use super::scenarios::{SEEDS, drilled, scenario};

/// The percentage of contributions that are in no update.
fn uncounted_percent(summary: &Summary) -> usize {
    let not = summary.tally.uncounted + summary.tally.told + summary.tally.given_up + summary.tally.gone;
    100 * not / (summary.tally.counted + not)
}

#[test]
fn every_scenario_of_the_folder_is_drilled_here() {
    let (here, others) = (
        [include_str!("drills.rs"), include_str!("byzantine.rs")].concat(),
        [
            include_str!("fault_schedule.rs"),
            include_str!("amended.rs"),
            include_str!("asynchronous.rs"),
            include_str!("deterministic.rs"),
            include_str!("trainers.rs"),
            include_str!("many_contributions.rs"),
        ]
        .concat(),
    );
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/drills")).unwrap() {
        let file = file.unwrap().file_name().into_string().unwrap();
        let Some(name) = file.strip_suffix(".toml") else { continue };
        let read = format!("scenario(\"{name}\")");
        let as_it_is =
            here.contains(&format!("drilled({read}")) || here.contains(&format!("drilled({}(", name.replace('-', "_")));
        assert!(as_it_is || others.contains(&read), "{name} is not drilled");
    }
}

#[test]
fn a_quiet_swarm_counts_every_contribution() {
    let quiet = drilled(scenario("quiet"), SEEDS);
    assert!(quiet.slowest_ms < 60_000, "took {} ms", quiet.slowest_ms);
    // Four paths through two modules each, in four phases. A contribution trained twice during a hand-off is counted
    // once.
    assert_eq!(quiet.tally.counted, 4 * 2 * 4 * SEEDS as usize);
    assert_eq!((quiet.tally.uncounted, quiet.tally.told, quiet.tally.given_up, quiet.tally.gone), (0, 0, 0, 0));
    assert!(quiet.tally.twice < SEEDS as usize / 20, "{:?}", quiet.tally);
}

#[test]
fn one_peer_trains_all_paths_in_turn() {
    let mut alone = scenario("quiet");
    alone.swarm.peers = 1;
    let alone = drilled(alone, 10);
    assert_eq!((alone.tally.counted, alone.tally.uncounted, alone.counts.unheld), (10 * 4 * 2 * 4, 0, 0));
}

#[test]
fn the_invariants_hold_under_delay_loss_and_reordering() {
    assert!(uncounted_percent(&drilled(scenario("rough"), SEEDS)) < 2);
}

#[test]
fn peers_that_crash_and_restart_lose_nothing() {
    let churn = drilled(scenario("churn"), SEEDS);
    assert!(churn.counts.takeovers_ms.len() as u64 > SEEDS);
    assert_eq!(churn.counts.unheld, 0);
}

#[test]
fn crashes_between_publishing_and_syncing_lose_nothing() {
    let crashes = drilled(scenario("crashes"), SEEDS);
    assert!(crashes.counts.faults["crash"] > 10 * SEEDS, "{:?}", crashes.counts.faults);
    assert_eq!(crashes.counts.unheld, 0);
}

#[test]
fn newcomers_that_catch_up_do_not_replace_an_owner_within_the_duration_of_a_phase() {
    let newcomers = drilled(scenario("newcomers"), SEEDS);
    assert_eq!(newcomers.counts.faults["join-storm"], 3 * SEEDS);
    // In one seed of 200, two newcomers that train quickly have not yet seen how long another path takes.
    assert!(newcomers.counts.needless <= 2, "{}", newcomers.counts.needless);
    assert_eq!(newcomers.counts.unheld, 0);
}

#[test]
fn the_paths_of_departed_peers_are_trained_by_others() {
    let departure = drilled(scenario("departure"), SEEDS);
    assert!(departure.counts.faults["gone"] > 0 && departure.counts.faults["leave"] > 0);
    assert_eq!(departure.counts.unheld, 0);
}

#[test]
fn every_module_has_a_second_holder_so_the_creator_may_leave_for_good() {
    let replica = drilled(scenario("replica"), SEEDS);
    // The only holder of a module would be spared.
    assert_eq!(replica.counts.faults["gone"], SEEDS);
    assert_eq!(replica.counts.unheld, 0);
}

#[test]
fn after_a_partition_chains_agree_and_all_contributions_count() {
    let split = drilled(scenario("split"), SEEDS);
    assert!(split.counts.switches > SEEDS, "chains have forked and merged");
    assert!(uncounted_percent(&split) < 10, "{:?}", split.tally);
}

/// Contributions that both sides still keep are counted or reported.
#[test]
fn after_a_long_partition_only_contributions_counted_too_long_ago_are_lost() {
    let deep = drilled(scenario("deep"), SEEDS);
    assert!(deep.counts.switches > SEEDS && deep.tally.given_up > 10 * SEEDS as usize, "{:?}", deep.tally);
}

#[test]
fn the_invariants_hold_with_slow_and_frozen_peers_hanging_trainers_and_drifting_clocks() {
    let slow = drilled(scenario("slow"), SEEDS);
    assert!(slow.counts.faults["hang"] > 0 && slow.counts.faults["trainer-dies"] > 0);
}

#[test]
fn a_phase_resumed_after_a_crash_has_the_same_result_with_little_delay() {
    let mut alone = scenario("quiet");
    (alone.swarm.peers, alone.swarm.phases, alone.swarm.noise) = (1, 16, 1.0);
    alone.swarm.levels = vec![Sharing::Shared];
    alone.swarm.phase_ms = [40_000, 40_000].into();
    alone.swarm.deadline_ms = 2_000_000;
    let mut crashes = alone.clone();
    // One crash in each phase, somewhere in its second half.
    crashes.fault_schedule = Some(FaultSchedule {
        kinds: vec![Kind::Crash],
        every_ms: 43_000,
        for_ms: 1_000,
        from_ms: 30_000,
        until_ms: 640_000,
    });
    let [undisturbed, crashes] =
        [alone, crashes].map(|scenario| run(&Arc::new(scenario), 1).unwrap_or_else(|failure| panic!("{failure}")));
    assert_eq!(crashes.loss.to_bits(), undisturbed.loss.to_bits());
    let times = crashes.counts.faults["crash"];
    assert!(times >= 10);
    // The peer was down, listened, fetched its text, and repeated the steps since its last checkpoint.
    let lost_ms = (crashes.finished_ms - undisturbed.finished_ms) / times;
    assert!(lost_ms < 1_000 + 1_500 + 1_000 + 5_000, "{lost_ms} ms a crash");
}

#[test]
fn newcomers_that_join_at_once_find_their_paths() {
    drilled(scenario("storm"), SEEDS);
}

#[test]
fn a_swarm_far_smaller_than_its_grid_trains_other_paths_every_few_phases() {
    let sampled = drilled(scenario("sampled"), SEEDS);
    // Twelve paths through three modules each, in ten phases. A late path misses a phase of a module that it has left.
    assert!(sampled.tally.counted as u64 > SEEDS * 12 * 3 * 10 * 9 / 10, "{:?}", sampled.tally);
    assert!(uncounted_percent(&sampled) < 2, "{:?}", sampled.tally);
}

/// The drill of many peers, with this number of experts per level and of peers.
fn many_peers(experts: u32, peers: usize) -> Scenario {
    let mut scenario = scenario("many-peers");
    scenario.swarm.levels = vec![Sharing::Experts(experts); 2];
    scenario.swarm.sample = Some(SampleConfig { paths: peers as u32, hold_phases: 0 });
    scenario.swarm.peers = peers;
    scenario
}

#[test]
fn control_bytes_and_phase_durations_do_not_depend_on_the_number_of_peers() {
    let drilled = |scenario| {
        let drill = drilled(scenario, 2);
        let tally = drill.tally;
        assert_eq!((tally.uncounted, tally.told, tally.given_up, drill.counts.unheld), (0, 0, 0, 0));
        (drill.counts.control_bytes_per_phase() as f64, median(&drill.counts.phases_ms).unwrap() as f64)
    };
    let (few, many) = (drilled(many_peers(6, 96)), drilled(many_peers(36, 576)));
    assert!(many.0 < 1.2 * few.0, "{} bytes a peer and phase, {} of few", many.0, few.0);
    assert!(many.1 < 1.5 * few.1, "{} ms a phase, {} of few", many.1, few.1);
}

/// The core can. The network's bound of topics for each peer still forbids it.
#[test]
fn one_peer_creates_a_run_in_which_each_of_256_paths_has_a_module_of_its_own() {
    let mut own = scenario("shared-by-many");
    own.swarm.levels = vec![Sharing::Experts(16), Sharing::Experts(16), Sharing::Path];
    (own.swarm.placed, own.swarm.peers, own.swarm.phases) = (false, 256, 1);
    let tally = drilled(own, 1).tally;
    assert_eq!((tally.counted, tally.uncounted, tally.gone), (256 * 3, 0, 0));
}

#[test]
fn the_invariants_hold_with_every_way_of_averaging() {
    let mut few = scenario("byzantine");
    (few.swarm.codec, few.swarm.momentum) = (Codec::TopK(4), 0.0);
    drilled(few, SEEDS / 4);
    let mut plain = scenario("churn");
    plain.swarm.rescale = Rescale::None;
    drilled(plain, SEEDS / 4);
}

#[test]
fn a_crashed_owner_is_replaced_within_two_heartbeats_and_one_that_leaves_at_the_first_message() {
    let ordinary = drilled(scenario("ordinary"), SEEDS);
    let takeover_ms = median(&ordinary.counts.takeovers_ms).unwrap();
    assert!(takeover_ms < 2 * HEARTBEAT_MS * 9 / 10, "{takeover_ms} ms");
    let hand_off_ms = median(&ordinary.counts.hand_offs_ms).unwrap();
    assert!(hand_off_ms <= scenario("ordinary").links.delay_ms.most, "{hand_off_ms} ms");
}

#[test]
fn phases_close_as_soon_after_a_departure_as_without_one() {
    let mut leaves = scenario("ordinary");
    leaves.faults.retain(|fault| fault.kind == Kind::Leave);
    leaves.faults[0].times = 1;
    let phase_ms = leaves.swarm.phase_ms.most;
    leaves.swarm.phase_ms.least = phase_ms;
    let calm = Scenario { faults: vec![], ..leaves.clone() };
    let [calm_ms, leaves_ms] = [calm, leaves].map(|scenario| {
        let scenario = Arc::new(scenario);
        let took = (0..60).map(|seed| run(&scenario, seed).unwrap_or_else(|failure| panic!("{failure}")).finished_ms);
        took.collect::<Vec<_>>()
    });
    let [calm_median_ms, leaves_median_ms] = [&calm_ms, &leaves_ms].map(|took_ms| median(took_ms).unwrap());
    assert!(leaves_median_ms <= calm_median_ms + 1_000, "{leaves_median_ms} ms, not {calm_median_ms}");
    // Lost messages cost a few seconds now and then. Two paths trained in turn would cost a phase each time.
    let longest_ms = calm_ms.iter().max().unwrap() + phase_ms / 2;
    assert!(leaves_ms.iter().all(|took_ms| *took_ms <= longest_ms), "{leaves_ms:?} ms, not {calm_ms:?}");
}

#[test]
fn the_invariants_hold_in_streaming_mode() {
    drilled(scenario("streaming"), SEEDS);
    let mut quiet = scenario("quiet");
    quiet.swarm.streaming = Some(Streaming::default());
    let summary = drilled(quiet, SEEDS);
    let tally = summary.tally;
    assert_eq!((tally.uncounted, tally.told, tally.given_up), (0, 0, 0), "{tally:?}");
    let mut all = scenario("everything");
    all.swarm.streaming = Some(Streaming { mix: 0.5, overlap: 3 });
    drilled(all, SEEDS);
}

#[test]
fn streaming_keeps_trainers_working_over_slow_links() {
    let streams = drilled(scenario("uplink"), 2);
    let mut waits = scenario("uplink");
    waits.swarm.streaming = None;
    let waits = drilled(waits, 2);
    let (streamed, waited) = (streams.counts.trained_percent(), waits.counts.trained_percent());
    println!("peers train {streamed:.1}% of their time, {waited:.1}% where they wait");
    assert!(streamed >= 98.0 && waited < 80.0, "{streamed:.1}% and {waited:.1}%");
    assert!(streams.loss() < 1.01 * waits.loss(), "{} and {}", streams.loss(), waits.loss());
}

#[test]
fn the_invariants_hold_under_all_faults_at_once() {
    drilled(scenario("everything"), SEEDS);
}

#[test]
fn a_trainer_that_hangs_over_a_checkpoint_trains_nothing_until_it_is_restarted() {
    let everything = Arc::new(scenario("everything"));
    // Its progress in a later phase used to be taken for progress in scoring, which delayed the restart.
    drill(&everything, 3_314..3_315, |_| {}).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_seed_replays_to_the_same_trace() {
    let everything = Arc::new(scenario("everything"));
    let traced = |seed| run_traced(&everything, seed, Trace::hashed()).unwrap();
    assert_eq!(traced(3), traced(3));
    assert_ne!(traced(3).trace, traced(4).trace);
}
