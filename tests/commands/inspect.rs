//! `pathswarm inspect` looks into a run that was trained, and says clearly where there is nothing to look at.
#![cfg(all(feature = "learning", feature = "network"))]

use crate::run::{RUN, World, mistake, pathswarm};
use serde_json::Value;

/// Trains for a moment; the collected run's folder.
fn trained(run: &str) -> (World, String) {
    let hasty = run.replace("inner_steps = 400", "inner_steps = 20").replace("phases = 12", "phases = 1");
    let world = World::of(&hasty, 2);
    let model = format!("{}/model", world.simulated());
    (world, model)
}

/// A text of two domains.
fn told_apart(world: &World) -> String {
    let mut lines = String::new();
    for domain in 0..2 {
        let all = std::fs::read_to_string(format!("{}/{domain}.jsonl", world.corpus)).unwrap();
        let told = format!("{{\"domain\":\"of {domain}\",\"text\"");
        lines.extend(all.lines().take(12).map(|line| format!("{}\n", line.replace("{\"text\"", &told))));
    }
    world.write("told.jsonl", lines)
}

#[test]
fn a_directional_path_is_looked_at_from_all_sides() {
    let run = RUN
        .replace("block.0", "layer.0")
        .replace("block.1", "layer.1")
        .replace("tied_head = true", "tied_head = true\ndirectional = { directions = 3 }");
    let (world, model) = trained(&run);
    let (text, images) = (told_apart(&world), world.name("images"));
    let more = ["--path", "2", "--intervene", "layer=1:off", "--prompt", "ba ke li", "--target", " mo"];
    let inspect = ["inspect", "directional", &model, "--text", &text];
    let output =
        pathswarm(&[&inspect[..], &more, &["--against", &model, "--out", &images, "--format", "json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found = |name: &str| &events.iter().find(|event| event["event"] == name).expect(name)["found"];
    let effects = found("effects");
    assert_eq!(effects["everywhere"][0]["more_nats"], 0.0);
    assert_eq!(effects["asked"][0]["perplexity"], effects["layers_off"][1]["perplexity"]);
    assert_eq!(found("distribution")["layers"].as_array().unwrap().len(), 2);
    assert_eq!(found("domains")["points"].as_array().unwrap().len(), 24, "a point for each document");
    assert_eq!(found("vocabulary")["directions"].as_array().unwrap().len(), 2 * 2 * 3);
    assert!(found("induction")[0]["accuracy"].as_f64().is_some() && found("attribution")["logit"].is_number());
    let layers = found("similarity")["layers"].as_array().unwrap();
    assert!(layers.iter().all(|cka| (cka.as_f64().unwrap() - 1.0).abs() < 1e-6), "{layers:?}");
    for name in ["interventions", "heads-off", "induction", "weights", "benefit", "domains", "angles", "attribution"] {
        let image = std::fs::read_to_string(format!("{images}/{name}.svg")).unwrap();
        assert!(image.starts_with("<svg"), "{name}");
    }
    let page = std::fs::read_to_string(format!("{images}/inspect.html")).unwrap();
    assert!(page.contains("path 2 of ") && page.contains("<h2 id=\"similarity-title\">Similarity</h2>"), "{page}");
    assert_eq!(page.matches("<svg role=").count(), 10, "{page}");
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("href"), "it loads nothing: {page}");

    // The peers' folders, in which what was collected was found.
    let score = |run: &str| {
        let output = pathswarm(&["inspect", "directional", run, "--text", &text, "--path", "2", "--format", "json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().next().unwrap().to_owned()
    };
    assert_eq!(score(&world.name("run")), score(&model));

    let output = pathswarm(&[&inspect[..], &["--ancestor"]].concat());
    let said = String::from_utf8(output.stdout).unwrap();
    for part in
        ["Weights of routing, everywhere", "as trained", "Random tokens read again", "Specialists", "entropy of"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }

    let wrong = |more: &[&str]| mistake(&[&inspect[..], more].concat());
    assert!(wrong(&["--intervene", "layer=2:off"]).contains("there is no layer 2; this model has 2, from 0"));
    assert!(wrong(&["--intervene", "head=0:louder"]).contains("is not an intervention"));
    assert!(wrong(&["--prompt", "", "--target", "ba"]).contains("--prompt has 0 tokens"));
    assert!(wrong(&["--path", "4"]).contains("there is no path 4"));
    let empty = world.write("empty.jsonl", "{\"text\":\"\"}\n");
    assert!(mistake(&["inspect", "directional", &model, "--text", &empty]).contains("empty.jsonl"));
    let short = world.write("short.jsonl", "{\"text\":\"ba\"}\n");
    assert!(mistake(&["inspect", "directional", &model, "--text", &short]).contains("no token is scored"));
}

#[test]
fn in_a_plain_path_there_is_nothing_to_look_at() {
    let (world, model) = trained(RUN);
    let text = told_apart(&world);
    let said = mistake(&["inspect", "directional", &model, "--text", &text]);
    assert!(said.contains("no directional attention") && said.contains("configs/directional-2x2.toml"), "{said}");
}
