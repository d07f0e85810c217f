//! What is generated.

use tch::Tensor;

use super::*;
use crate::config::{LevelConfig, ModelConfig, first_block};
use crate::grid::Sharing;
use crate::model::samples::{modern_models, small_levels, small_model, small_path};

fn sampling() -> Sampling {
    Sampling { count: 40, temperature: 1.0, top_k: 0, seed: Seed::root(4), stop: 9999, before: 0 }
}

#[test]
fn it_goes_on_past_the_context_and_repeats_with_its_seed() {
    let path = small_path(&small_model(), &small_levels());
    let sampling = sampling();
    let text = generate(&path, &[1, 2, 3], &sampling).unwrap();
    assert_eq!(text.len(), 40);
    assert_eq!(generate(&path, &[1, 2, 3], &sampling).unwrap(), text);
    assert_ne!(generate(&path, &[1, 2, 3], &Sampling { seed: Seed::root(5), ..sampling }).unwrap(), text);
}

#[test]
fn a_text_made_in_pieces_is_the_same_text() {
    let path = small_path(&small_model(), &small_levels());
    let context = small_model().context;
    let prompt = [1, 2, 3];
    let whole = generate(&path, &prompt, &Sampling { count: 70, ..sampling() }).unwrap();
    let mut text = prompt.to_vec();
    for count in [1, 30, 9, 30] {
        let before = seen_from(text.len(), context);
        let made = generate(&path, &text[before..], &Sampling { count, before, ..sampling() }).unwrap();
        text.extend(made);
    }
    assert_eq!(text[3..], whole);
}

#[test]
fn a_model_sees_between_half_a_context_and_a_whole_one() {
    for context in [1, 2, 3, 24] {
        for length in 1..200 {
            let seen = length - seen_from(length, context);
            assert!(seen <= context && (seen == length || 2 * seen > context), "{seen} of {length}, {context}");
        }
    }
    assert_eq!([24, 25, 36, 37].map(|length| seen_from(length, 24)), [0, 12, 12, 24]);
}

#[test]
fn what_is_remembered_changes_nothing() {
    let path = small_path(&small_model(), &small_levels());
    let greedy = Sampling { temperature: 0.0, count: 20, ..sampling() };
    let mut text: Vec<i64> = vec![1, 2, 3];
    for token in generate(&path, &[1, 2, 3], &greedy).unwrap() {
        let logits = path.logits(&Tensor::from_slice(&text).unsqueeze(0)).unwrap();
        let likeliest = logits.select(1, text.len() as i64 - 1).argmax(-1, false).int64_value(&[0]);
        assert_eq!(i64::from(token), likeliest);
        text.push(likeliest);
    }
}

#[test]
fn it_ends_at_the_stop_token() {
    let path = small_path(&small_model(), &small_levels());
    let greedy = Sampling { temperature: 0.0, ..sampling() };
    let text = generate(&path, &[1, 2, 3], &greedy).unwrap();
    let stop = text[5];
    let cut = generate(&path, &[1, 2, 3], &Sampling { stop, ..greedy }).unwrap();
    let first = text.iter().position(|token| *token == stop).unwrap();
    assert_eq!(cut, text[..first]);
}

#[test]
fn one_candidate_is_the_greedy_choice() {
    let path = small_path(&small_model(), &small_levels());
    let greedy = generate(&path, &[7], &Sampling { temperature: 0.0, ..sampling() }).unwrap();
    assert_eq!(generate(&path, &[7], &Sampling { top_k: 1, temperature: 3.0, ..sampling() }).unwrap(), greedy);
}

#[test]
fn a_fork_goes_on_by_itself_and_another_network_reads_the_whole_text() {
    let path = small_path(&small_model(), &small_levels());
    let mut text = Decoding::new(vec![1, 2, 3], 0).unwrap();
    text.logits(&path).unwrap();
    let mut ahead = Decoding::new(vec![1, 2, 3], 0).unwrap();
    ahead.read_ahead(&path).unwrap();
    let mut fork = ahead.fork();
    fork.logits(&path).unwrap();
    for token in [7, 8, 9] {
        fork.push(token);
        fork.logits(&path).unwrap();
    }
    assert_eq!((text.tokens(), fork.position()), (&[1, 2, 3][..], 6));
    text.push(4);
    let logits = text.logits(&path).unwrap();
    let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
    let mut again = Decoding::new(vec![1, 2, 3, 4], 0).unwrap();
    assert!(close(&again.logits(&path).unwrap(), &logits));
    text.push(5);
    text.forget();
    again.push(5);
    assert!(close(&text.logits(&path).unwrap(), &again.logits(&path).unwrap()));
}

#[test]
fn a_text_goes_on_with_another_path_from_the_first_block_that_differs() {
    let mut models = modern_models();
    models.push(("plain", small_model()));
    for (name, model) in models {
        let model = ModelConfig { blocks: 3, ..model };
        let level = |parts: &[&str]| LevelConfig {
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
            sharing: Sharing::Shared,
        };
        let levels = [level(&["embedding", "block.0"]), level(&["block.1"]), level(&["block.2", "final-norm", "head"])];
        let path = |level: usize| {
            let mut path = small_path(&model, &levels);
            let own: Vec<f32> = path.level(level).unwrap().iter().map(|value| value * 0.5).collect();
            path.set_level(level, &own).unwrap();
            path.keep_streams(levels.iter().map(|level| first_block(&model, level)).collect());
            path
        };
        let paths: Vec<PathModel> = (0..3).map(path).collect();
        // From one to the next: the networks differ by two levels each.
        let mut texts: Vec<Decoding> =
            [&[1, 2, 3][..], &[5; 9]].iter().map(|prompt| Decoding::new(prompt.to_vec(), 0).unwrap()).collect();
        for (step, (path, parted)) in [(1, 0), (2, 1), (1, 1), (1, 3), (2, 1), (0, 0)].into_iter().enumerate() {
            let path = &paths[path];
            texts.iter_mut().for_each(|text| text.go_on_above(path, parted));
            let reads = path.reads_together() && step > 0 && parted > 0;
            assert_eq!(texts[1].unread(path), if reads { 1 } else { 9 + 2 * step }, "{name}, step {step}");
            for token in [7, 8] {
                let mut at_once: Vec<&mut Decoding> = texts.iter_mut().collect();
                let found = Decoding::logits_of_each(path, &mut at_once);
                for (text, found) in texts.iter_mut().zip(found) {
                    let anew = Decoding::new(text.tokens().to_vec(), 0).unwrap().logits(path).unwrap();
                    let most = anew.iter().zip(found.unwrap()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    assert!(most < 1e-3, "{name}, step {step}: {most} apart");
                    text.push(token);
                }
            }
        }
    }
}

#[test]
fn a_prompt_that_begins_like_an_earlier_text_is_not_read_again() {
    for (name, model) in modern_models() {
        let path = small_path(&model, &small_levels());
        let mut earlier = Decoding::new(vec![1, 2, 3, 4], 0).unwrap();
        earlier.logits(&path).unwrap();
        earlier.push(5);
        earlier.logits(&path).unwrap();
        assert_eq!(earlier.begins_like(&[1, 2, 3, 4, 5, 6]), 5);
        assert_eq!((earlier.begins_like(&[1, 2, 3]), earlier.begins_like(&[2, 2, 3])), (2, 0));
        let prompt = vec![1, 2, 3, 7, 8];
        let mut begun = earlier.begin_like(prompt.clone(), 3).unwrap();
        let reused = path.reads_together();
        assert_eq!(begun.unread(&path), if reused { 2 } else { 5 }, "{name}");
        let logits = begun.logits(&path).unwrap();
        let anew = Decoding::new(prompt, 0).unwrap().logits(&path).unwrap();
        assert!(logits.iter().zip(&anew).all(|(a, b)| (a - b).abs() < 1e-4), "{name}");
    }
}

#[test]
fn texts_that_are_read_at_once_continue_as_each_would_alone() {
    let mut models = modern_models();
    models.push(("plain", small_model()));
    for (name, model) in models {
        let path = small_path(&model, &small_levels());
        let prompts: [&[u32]; 4] = [&[1, 2, 3], &[7], &[5, 5, 200, 4, 9, 9], &[40; 20]];
        let mut alone: Vec<Decoding> =
            prompts.iter().map(|prompt| Decoding::new(prompt.to_vec(), 0).unwrap()).collect();
        let mut together: Vec<Decoding> = alone.iter().map(Decoding::fork).collect();
        // Past the context of 24, where each begins anew at another time.
        for step in 0..30 {
            let mut texts: Vec<&mut Decoding> = together.iter_mut().collect();
            let found = Decoding::logits_of_each(&path, &mut texts);
            for ((alone, together), found) in alone.iter_mut().zip(&mut together).zip(found) {
                let (expected, found) = (alone.logits(&path).unwrap(), found.unwrap());
                let most = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(most < 1e-3, "{name}, step {step}: {most} apart");
                let token = (step * 37 + 11) % 300;
                alone.push(token);
                together.push(token);
            }
        }
    }
}

#[test]
fn texts_come_and_go_and_a_prompt_is_read_in_pieces() {
    for (name, model) in modern_models() {
        let path = small_path(&model, &small_levels());
        let mut alone: Vec<Decoding> = (0..5).map(|text| Decoding::new(vec![7 + text; 6], 0).unwrap()).collect();
        let mut together: Vec<Decoding> = alone.iter().map(Decoding::fork).collect();
        while together[3].read_some(&path, 2).unwrap() {}
        assert_eq!(together[3].unread(&path), 1);
        for (step, present) in [&[0, 1][..], &[0, 1, 2, 3], &[4, 0, 2], &[2], &[0, 1, 2, 3, 4]].into_iter().enumerate()
        {
            let chosen = together.iter_mut().enumerate().filter(|(text, _)| present.contains(text));
            let mut texts: Vec<&mut Decoding> = chosen.map(|(_, text)| text).collect();
            let found = Decoding::logits_of_each(&path, &mut texts);
            let mut present = present.to_vec();
            present.sort_unstable();
            for (text, found) in present.into_iter().zip(found) {
                let expected = alone[text].logits(&path).unwrap();
                let most = expected.iter().zip(found.unwrap()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(most < 1e-3, "{name}, step {step}, text {text}: {most} apart");
                alone[text].push(step as u32);
                together[text].push(step as u32);
            }
        }
    }
}

#[test]
fn what_cannot_be_continued_is_an_error() {
    let path = small_path(&small_model(), &small_levels());
    assert!(matches!(generate(&path, &[], &sampling()), Err(GenerateError::EmptyPrompt)));
    assert!(matches!(generate(&path, &[999], &sampling()), Err(GenerateError::Forward(_))));
    let hot = Sampling { temperature: f64::NAN, ..sampling() };
    assert!(matches!(generate(&path, &[1], &hot), Err(GenerateError::Temperature(_))));
}
