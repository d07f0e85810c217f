//! What `pathswarm config` promises: every value with its origin, the count of parameters, and one clear line for
//! each mistake.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the program in the project's folder, with nothing of ours in the environment but these variables.
fn pathswarm(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pathswarm"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PATHSWARM_")) {
        command.env_remove(name);
    }
    let folder = env!("CARGO_MANIFEST_DIR");
    command.envs(variables.iter().copied()).args(arguments).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What a command that ends well prints.
#[track_caller]
fn printed(variables: &[(&str, &str)], arguments: &[&str]) -> String {
    let output = pathswarm(variables, arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout)
}

/// The error's line of a command that the user got wrong: exit status 2, one line, one hint, no output.
#[track_caller]
fn mistake(variables: &[(&str, &str)], arguments: &[&str]) -> String {
    let output = pathswarm(variables, arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(text(&output.stdout), "");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[1].starts_with("hint: "), "{said}");
    lines[0].strip_prefix("error: ").unwrap().to_owned()
}

fn json(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn show_prints_every_value_with_its_origin() {
    let variables = [("PATHSWARM_TRAINING_PHASES", "7"), ("PATHSWARM_DEVICE", "cuda")];
    let arguments = ["config", "show", "configs/demo.toml", "--machine", "peers/laptop-cpu.toml", "--set", "seed=9"];
    let shown = printed(&variables, &arguments);
    let words = |key: &str| {
        let line = shown.lines().find(|line| line.split_whitespace().next() == Some(key)).unwrap();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(words("seed"), ["9", "--set"]);
    assert_eq!(words("training.phases"), ["7", "PATHSWARM_TRAINING_PHASES"]);
    assert_eq!(words("device"), ["\"cuda\"", "PATHSWARM_DEVICE"]);
    assert_eq!(words("name"), ["\"demo\"", "configs/demo.toml:4"]);
    assert_eq!(words("routing.kmeans_rounds"), ["50", "default"]);
    assert!(words("precision")[1].starts_with("peers/laptop-cpu.toml:"));
}

#[test]
fn show_gives_programs_the_same_facts() {
    let lines = json(&printed(&[], &["config", "show", "configs/demo.toml", "--format", "json"]));
    let find = |key: &str| lines.iter().find(|line| line["key"] == key).unwrap();
    assert!(lines.iter().all(|line| line["event"] == "value"));
    assert_eq!(find("levels[0].sharing.experts")["value"], 2);
    assert_eq!(find("outer.learning_rate")["origin"], "file");
    assert_eq!(find("listen")["of"], "machine");
    assert_eq!(find("precision")["origin"], "default");
}

#[test]
fn parameters_are_counted_per_module_per_path_and_in_all() {
    let lines = json(&printed(&[], &["config", "parameters", "configs/dipaco-2x2.toml", "--format", "json"]));
    let [line] = &lines[..] else { panic!("one line, found {lines:?}") };
    let each: Vec<u64> = line["levels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|level| level["parameters_per_module"].as_u64().unwrap())
        .collect();
    assert_eq!(line["per_path"], 3_344_064);
    assert_eq!(each.iter().sum::<u64>(), 3_344_064);
    assert_eq!(line["in_all"], 2 * 3_344_064);
    let shown = printed(&[], &["config", "parameters", "configs/dipaco-16x16-150m.toml"]);
    assert!(shown.contains("a path            149,804,928"), "{shown}");
    assert!(shown.contains("in all          2,396,878,848"), "{shown}");
}

#[cfg(all(feature = "learning", feature = "network"))]
#[test]
fn the_memory_of_a_step_is_planned_by_part_and_chosen_by_what_fits() {
    let of = |settings: &[&str]| {
        let flags = settings.iter().flat_map(|setting| ["--set", setting]);
        let base = ["config", "memory", "configs/smollm2-2x2.toml", "--format", "json", "--set", "device=cpu"];
        pathswarm(&[], &base.into_iter().chain(flags).collect::<Vec<_>>())
    };
    let plan = |settings: &[&str]| json(&text(&of(settings).stdout)).remove(0);
    let whole = plan(&["micro_batch_sequences=8", "checkpointing=off", "memory_limit_bytes=1000000000000"]);
    let parts = whole["parts"].as_object().unwrap();
    assert_eq!(parts["parameters"], 4 * 134_515_008u64);
    assert_eq!(parts["moments"], 8 * 134_515_008u64);
    assert_eq!(whole["bytes"], parts.values().map(|bytes| bytes.as_u64().unwrap()).sum::<u64>());
    let tight = plan(&["memory_limit_bytes=6000000000"]);
    let bytes = |plan: &Value, key: &str| plan[key].as_u64().unwrap();
    let is_less = bytes(&tight, "micro_batch") < 8 || tight["checkpointing"] == true;
    assert!(is_less && bytes(&tight, "bytes") <= bytes(&tight, "budget_bytes"), "{tight}");
    let refused = of(&["memory_limit_bytes=1000000000"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("of its sequences at once and checkpointing"), "{said}");
    let no_card = mistake(&[], &["config", "memory", "configs/demo.toml", "--set", "device=cuda:99"]);
    assert!(no_card.contains("device = \"cuda"), "{no_card}");
    let no_device = mistake(&[], &["config", "show", "--set", "device=cuda:x"]);
    assert!(no_device.contains("\"cuda:1\""), "{no_device}");
}

#[test]
fn what_a_token_meets_is_counted_where_it_chooses() {
    let line = |run: &str| json(&printed(&[], &["config", "parameters", run, "--format", "json"])).remove(0);
    let dense = line("configs/dna/text-dense.toml");
    assert_eq!((&dense["per_path"], &dense["active"]), (&406_014_976.into(), &Value::Null));
    // Of the DNA paper's tables 2 and 5, in millions: 583, 603 and 596, of which a token meets 406, 433, and 412 less skips.
    let top = line("configs/dna/text-top-1.toml");
    assert_eq!(top["per_path"], 583_016_238);
    assert_eq!(top["active"]["with_reuse"], 406_014_976 + 22 * 36 * 1024);
    assert_eq!(top["active"]["each_once"], top["active"]["with_reuse"]);
    let two = line("configs/dna/text-top-2.toml");
    assert_eq!((&two["per_path"], &two["active"]["with_reuse"]), (&603_188_184.into(), &433_280_256.into()));
    let skipping = line("configs/dna/text-top-2-skips.toml");
    assert_eq!(skipping["per_path"], 596_124_139);
    assert!(skipping["active"]["with_reuse"].as_u64() < two["active"]["with_reuse"].as_u64());
    // Of tables 1 and 4: 22, 34, 18 and 34; 44 in the last row, which comes out a little larger.
    let of_images = ["dense", "top-1", "top-2-skips", "top-1-n", "top-2-n"];
    let sizes = of_images.map(|name| line(&format!("configs/dna/vision-{name}.toml"))["per_path"].clone());
    assert_eq!(sizes, [21_997_440, 34_465_361, 18_670_611, 34_694_062, 45_417_142].map(Value::from));
}

#[test]
fn every_shipped_configuration_is_one() {
    let names = |folder: &str| {
        let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".toml")).map(|name| format!("{folder}/{name}")).collect::<Vec<_>>()
    };
    for run in [names("configs"), names("configs/dna")].concat() {
        let line = &json(&printed(&[], &["config", "parameters", &run, "--format", "json"]))[0];
        let (paths, at_a_time) = match run.as_str() {
            large if ["text", "vision"].iter().any(|kind| large.starts_with(&format!("configs/dna/{kind}-"))) => (1, 1),
            "configs/directional-433m.toml" => (1, 1),
            "configs/dipaco-16x16-150m.toml" => (256, 256),
            "configs/dipaco-4x4x4.toml" => (64, 8),
            _ => (4, 4),
        };
        assert_eq!((&line["paths"], &line["paths_at_a_time"]), (&paths.into(), &at_a_time.into()), "{run}");
    }
    for machine in names("peers") {
        printed(&[], &["config", "show", "--machine", &machine]);
    }
}

#[test]
fn a_sample_that_cannot_be_names_the_place_that_asked_for_it() {
    let show = ["config", "show", "configs/dipaco-4x4x4.toml"];
    let found = mistake(&[], &[&show[..], &["--set", "sample.paths=3"]].concat());
    assert!(found.starts_with("--set: sample: 3 paths at a time leave modules of level 0 out, which has 4"), "{found}");
    let found = mistake(&[("PATHSWARM_SAMPLE_PATHS", "65")], &show);
    assert!(found.starts_with("PATHSWARM_SAMPLE_PATHS: sample.paths = 65: at most the paths"), "{found}");
    let found = mistake(&[], &[&show[..], &["--set", "outer.mode=asynchronous"]].concat());
    assert!(
        found.starts_with("configs/dipaco-4x4x4.toml:") && found.contains("sample.hold_phases = 2: must be 0 where"),
        "{found}"
    );
}

#[test]
fn the_shipped_runs_are_as_long_as_they_say() {
    let steps = |run: &str| {
        let lines = json(&printed(&[], &["config", "show", run, "--format", "json"]));
        let of = |key: &str| lines.iter().find(|line| line["key"] == key).unwrap()["value"].as_u64().unwrap();
        (of("training.ancestor_steps"), of("training.phases") * of("training.inner_steps"))
    };
    assert_eq!(steps("configs/dipaco-2x2.toml"), (75, 325));
    assert_eq!(steps("configs/demo.toml"), (75, 300));
    assert_eq!(steps("configs/diloco.toml"), steps("configs/demo.toml"));
    assert_eq!(steps("configs/flat-moe.toml"), steps("configs/demo.toml"));
    assert_eq!(steps("configs/dipaco-16x16-150m.toml"), (24_000, 64_050));
}

#[test]
fn each_mistake_in_a_file_is_one_line_that_names_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let demo = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/demo.toml")).unwrap();
    let wrong = |from: &str, to: &str| {
        assert!(demo.contains(from));
        let file = write(folder.path(), "run.toml", &demo.replacen(from, to, 1));
        let said = mistake(&[], &["config", "parameters", &file]);
        said.strip_prefix(&file).unwrap_or_else(|| panic!("names no file: {said}")).to_owned()
    };
    assert!(wrong("phases =", "fases =").contains(": training.fases: unknown field `fases`, expected one of"));
    assert!(wrong("seed = 1", "seed = \"one\"").starts_with(":5: seed: invalid type: string"));
    assert!(wrong("seed = 1", "seed = ").starts_with(":5: "));
    assert!(wrong("\"blocks.0-1\"", "\"blocks.0-2\"").contains("block.2 is listed in level 0 and again in level 1"));
    assert!(wrong(", \"final-norm\"", "").contains("no level lists final-norm"));
    assert!(wrong("experts = 2", "experts = 0").contains("has no experts"));
    assert!(wrong("heads = 4", "heads = 3").contains(": model.heads = 3: must divide model.width = 128"));
    assert!(wrong("momentum = 0.5", "momentum = 1.5").contains(": outer.momentum = 1.5: from 0 to below 1"));
}

#[test]
fn a_mistake_in_a_table_is_told_where_it_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let demo = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/demo.toml")).unwrap();
    let misspelt = demo.replacen("\"head\"", "\"hed\"", 1);
    let line = 1 + misspelt.lines().position(|line| line.contains("\"hed\"")).unwrap();
    let file = write(folder.path(), "misspelt.toml", &misspelt);
    let said = mistake(&[], &["config", "parameters", &file]);
    assert!(said.starts_with(&format!("{file}:{line}: levels: level 1 lists \"hed\"")), "{said}");

    let said = mistake(&[], &["config", "show", "configs/demo.toml", "--set", "outer.streaming.mix=3"]);
    assert!(said.starts_with("--set: outer.streaming = { mix = 3, overlap = 1 }: "), "{said}");
    let said = mistake(&[], &["config", "show", "configs/demo.toml", "--set", "model.architecture=dna"]);
    assert!(said.contains("model.architecture = \"dna\": needs the table [model.dna]"), "{said}");
    let said = mistake(&[], &["config", "show", "configs/demo.toml", "--set", "disk_bytes=10 GB"]);
    assert!(said.contains("disk_bytes: invalid type: string \"10 GB\", expected a whole number"), "{said}");
    // A variable of a flag is no key.
    printed(&[("PATHSWARM_WEB_TOKEN", "0123456789abcdef")], &["config", "show", "configs/demo.toml"]);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    assert!(mistake(&[], &["config", "parameters", "no-such.toml"]).starts_with("no-such.toml: No such file"));
    assert_eq!(mistake(&[], &["config", "parameters", "configs"]), "configs: is not a file");
    let latin1 = folder.path().join("latin1.toml");
    std::fs::write(&latin1, b"name = \"caf\xe9\"").unwrap();
    assert!(mistake(&[], &["config", "parameters", latin1.to_str().unwrap()]).contains("valid UTF-8"));
    let machine = write(folder.path(), "machine.toml", "gpu = true\n");
    let said = mistake(&[], &["config", "show", "--machine", &machine]);
    assert!(said.starts_with(&format!("{machine}:1: gpu: unknown field `gpu`")), "{said}");
}

#[test]
fn a_wrong_flag_or_variable_is_named() {
    let show = ["config", "show", "configs/demo.toml"];
    let said = mistake(&[("PATHSWARM_TRAINING_PHASES", "many")], &show);
    assert!(said.starts_with("PATHSWARM_TRAINING_PHASES: training.phases: invalid type"), "{said}");
    assert!(mistake(&[("PATHSWARM_FASES", "3")], &show).starts_with("PATHSWARM_FASES: there is no key \"fases\""));
    assert_eq!(mistake(&[], &[&show[..], &["--set", "seed"]].concat()), "--set: \"seed\" is not KEY=VALUE");
    let said = mistake(&[], &[&show[..], &["--set", "levels=[]"]].concat());
    assert!(said.starts_with("--set: "), "{said}");
}

#[test]
fn a_mistake_reaches_programs_too() {
    let output = pathswarm(&[], &["config", "parameters", "no-such.toml", "--format", "json"]);
    assert_eq!(output.status.code(), Some(2));
    let [line] = &json(&text(&output.stdout))[..] else { panic!("one line") };
    assert_eq!(line["event"], "error");
    assert!(line["message"].as_str().unwrap().starts_with("no-such.toml: "));
    assert!(line["hint"].is_string());
}

#[test]
fn a_command_line_that_makes_no_sense_is_the_users_mistake() {
    let output = pathswarm(&[], &["config", "shew"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("error: unrecognized subcommand 'shew'"));
    assert!(printed(&[], &["--help"]).contains("config"));
}

/// The values in JSON that a command prints.
fn events(arguments: &[&str]) -> Vec<Value> {
    json(&printed(&[], &[arguments, &["--format", "json"]].concat()))
}

fn explained() -> BTreeSet<String> {
    let keys = events(&["config", "explain"]);
    keys.iter().map(|key| key["key"].as_str().unwrap().to_owned()).collect()
}

/// The fields that a table has, from the refusal of one that it has not.
fn fields(table: &str) -> Vec<String> {
    let refused = mistake(&[], &["config", "show", "configs/demo.toml", "--set", &format!("{table}.none=1")]);
    let (_, expected) = refused.split_once("expected ").unwrap();
    let names = expected.lines().next().unwrap().split('`').skip(1).step_by(2);
    names.map(|name| format!("{table}.{name}")).collect()
}

#[test]
fn every_key_that_the_program_knows_is_explained() {
    let explained = explained();
    let tables = [
        "text",
        "text.chat",
        "model",
        "model.rotary",
        "model.dna",
        "model.directional",
        "sample",
        "routing",
        "training",
        "outer",
    ];
    for table in tables.into_iter().chain(["training.augment"]) {
        let fields = fields(table);
        assert!(fields.len() > 1, "{table}: {fields:?}");
        let missing: Vec<&String> = fields.iter().filter(|field| !explained.contains(*field)).collect();
        assert!(missing.is_empty(), "no page explains {missing:?}");
        // And nothing that does not exist.
        let prefix = format!("{table}.");
        let named = explained.iter().filter(|key| key.strip_prefix(&prefix).is_some_and(|rest| !rest.contains('.')));
        let made_up: Vec<&String> = named.filter(|key| !fields.contains(*key)).collect();
        assert!(made_up.is_empty(), "there is no {made_up:?}");
    }
    let refused = mistake(&[], &["config", "show", "configs/demo.toml", "--set", "none=1"]);
    let (_, first) = refused.split_once("keys begin with ").unwrap();
    for key in first.lines().next().unwrap().split(", ") {
        let in_it = explained.iter().any(|name| name == key || name.starts_with(&format!("{key}.")));
        assert!(in_it, "no page explains {key}");
    }
}

/// A default in words as a value, where it is one.
fn literal(default: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(default.trim_matches('`')).ok()?;
    (!value.is_null()).then_some(value)
}

#[test]
fn the_defaults_of_the_reference_are_those_of_the_program() {
    let shown = events(&["config", "show", "configs/demo.toml"]);
    let mut compared = 0;
    for key in events(&["config", "explain"]) {
        let Some(stated) = key["default"].as_str().and_then(literal) else { continue };
        let same = |value: &&Value| value["key"] == key["key"] && value["origin"] == "default";
        let Some(value) = shown.iter().find(same) else { continue };
        let equal = match (value["value"].as_f64(), stated.as_f64()) {
            (Some(value), Some(stated)) => (value - stated).abs() <= 1e-9 * stated.abs(),
            _ => value["value"] == stated,
        };
        assert!(equal, "{}: the page says {stated}, the program {}", key["key"], value["value"]);
        compared += 1;
    }
    assert!(compared >= 30, "{compared}");
}

#[test]
fn a_key_is_explained_in_words_and_a_wrong_one_with_those_that_are_like_it() {
    let said = printed(&[], &["config", "explain", "training.clip_norm"]);
    let lines = ["training.clip_norm", "  value    above 0", "  default  1"];
    assert_eq!(said.lines().take(3).collect::<Vec<_>>(), lines);
    let of_table = events(&["config", "explain", "sample"]);
    assert_eq!(of_table.iter().map(|key| &key["key"]).collect::<Vec<_>>(), ["sample.paths", "sample.hold_phases"]);
    let refused = text(&pathswarm(&[], &["config", "explain", "training.momentum"]).stderr);
    let hint = "hint: perhaps outer.momentum; pathswarm config explain lists all keys";
    assert_eq!(refused.lines().collect::<Vec<_>>(), ["error: there is no key \"training.momentum\"", hint]);
}

#[test]
fn what_is_not_set_and_has_no_single_default_is_shown_in_words() {
    let shown = printed(&[], &["config", "show", "configs/demo.toml"]);
    let line = |key: &str| shown.lines().find(|line| line.split_whitespace().next() == Some(key)).unwrap().to_owned();
    assert!(line("outer.norm_cap").ends_with("(2; asynchronous 0)  default"), "{}", line("outer.norm_cap"));
    assert!(line("outer.streaming").contains("false"), "{}", line("outer.streaming"));
    let streams = printed(&[], &["config", "show", "configs/demo.toml", "--set", "outer.streaming=true"]);
    assert!(streams.lines().any(|line| line.starts_with("outer.streaming") && line.ends_with("--set")), "{streams}");
}
