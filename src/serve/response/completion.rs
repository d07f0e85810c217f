//! Answers of `/v1/completions`.

use serde_json::{Value, json};

use crate::serve::request::CompletionRequest;
use crate::serve::response::collect::{Answer, Choice, extension};
use crate::serve::response::head::{Head, usage};
use crate::serve::response::tokens::Listed;
use crate::serve::served_run::ServedRun;

/// The best `n` of each prompt's choices, by mean log-probability.
pub fn best_of(answer: Answer, request: &CompletionRequest) -> Vec<Choice> {
    let mut all = answer.0.into_iter();
    let mut best = Vec::new();
    for _ in &request.prompts {
        let mut own: Vec<Choice> = all.by_ref().take(request.best_of).collect();
        if request.best_of > request.shared.n {
            own.sort_by(|a, b| b.mean_logprob().total_cmp(&a.mean_logprob()));
        }
        best.extend(own.into_iter().take(request.shared.n));
    }
    best
}

/// A whole answer. `prompts` has the tokens of each prompt, and `echoes` its text where the answer begins with it.
pub fn whole(
    run: &ServedRun,
    request: &CompletionRequest,
    (head, answer): (&Head, Answer),
    prompts: &[Vec<u32>],
    echoes: &[String],
) -> Value {
    let generated = answer.0.iter().map(|choice| choice.generated).sum();
    let choices = best_of(answer, request);
    let values = choices.iter().enumerate().map(|(index, choice)| {
        let number = index / request.shared.n;
        let (prompt, echo) = (&prompts[number], echoes.get(number).map_or("", String::as_str));
        let mut value = json!({
            "index": index,
            "text": format!("{echo}{}", choice.text),
            "logprobs": logprobs(run, request, prompt, choice),
            "finish_reason": choice.finish_reason(),
        });
        let prefix = run.config.routing.prefix_tokens;
        value["x_pathswarm"] = extension(&request.shared.target, choice, request.shared.seed, &run.grid, prefix);
        value
    });
    let values: Vec<Value> = values.collect();
    head.value("text_completion", &values, Some(usage(prompts.iter().map(Vec::len).sum(), generated)))
}

/// The log-probabilities of a choice, those of its prompt first, if the answer begins with that.
fn logprobs(run: &ServedRun, request: &CompletionRequest, prompt: &[u32], choice: &Choice) -> Value {
    let Some(top) = request.logprobs else { return Value::Null };
    let (mut listed, mut at) = (Listed::default(), 0);
    for (token, score) in prompt.iter().zip(choice.prompt.iter()) {
        at = listed.push(&run.tokenizer, (*token, score.as_ref()), top, at);
    }
    // A client that asks for one token after its prompt relies on it that there is one, be it the end.
    for token in choice.tokens.iter().chain(&choice.end) {
        at = listed.push(&run.tokenizer, (token.token, token.score.as_ref()), top, at);
    }
    listed.value()
}
