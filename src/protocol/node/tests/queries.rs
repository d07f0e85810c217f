//! Tests that queries about text and their results have golden bytes on the wire.

use crate::names::PathId;
use crate::protocol::wire::encoding;
use crate::protocol::{Request, Response};
use crate::query::{Prompt, QueriedModel, Query, QueryResult, TokenSpan};

fn prompt() -> Prompt {
    Prompt {
        path: PathId(3),
        tokens: vec![7, 258],
        before: 9,
        count: 32,
        temperature: 0.5.into(),
        top_k: 40,
        seed: 5,
        stop: 1,
    }
}

fn golden(kind: u8, number: u32, numbers: &[u64]) -> Vec<u8> {
    let mut bytes = [&b"PSW1\x06\x00"[..], &[kind, 0], &number.to_le_bytes()].concat();
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes
}

#[track_caller]
fn asks(query: Query, body: &[u8]) {
    let request = Request::Query(query);
    let bytes = [&golden(2, 4, &[])[..], body].concat();
    assert_eq!(encoding::encode(&request).unwrap(), bytes);
    assert_eq!(encoding::decode::<Request>(&bytes), Ok(request));
}

#[track_caller]
fn answers(result: QueryResult, body: &[u8]) {
    let response = Response::QueryResult(result);
    let bytes = [&golden(3, 6, &[])[..], body].concat();
    assert_eq!(encoding::encode(&response).unwrap(), bytes);
    assert_eq!(encoding::decode::<Response>(&bytes), Ok(response));
}

#[test]
fn queries_have_golden_bytes() {
    let (word, long) = (|number: u32| number.to_le_bytes(), |number: u64| number.to_le_bytes());
    asks(Query::Route(vec![vec![258]]), &[&word(0)[..], &long(1), &long(1), &word(258)].concat());
    let span = TokenSpan { tokens: vec![7, 8], from: 1 };
    let body = [&long(1)[..], &long(2), &word(7), &word(8), &word(1)].concat();
    asks(Query::Score(QueriedModel::Ancestor, vec![span.clone()]), &[&word(1)[..], &word(0), &body].concat());
    let of_path = [&word(1)[..], &word(1), &word(3), &body].concat();
    asks(Query::Score(QueriedModel::Path(PathId(3)), vec![span]), &of_path);
    let head = [&word(2)[..], &word(3), &long(2), &word(7), &word(258), &long(9), &word(32)].concat();
    let tail = [&0.5f64.to_le_bytes()[..], &word(40), &long(5), &word(1)].concat();
    asks(Query::Continue(prompt()), &[head, tail].concat());
}

#[test]
fn query_results_have_golden_bytes() {
    let (word, long) = (|number: u32| number.to_le_bytes(), |number: u64| number.to_le_bytes());
    answers(QueryResult::Routes(vec![PathId(3)]), &[&word(0)[..], &long(1), &word(3)].concat());
    answers(QueryResult::Nats(vec![1.5.into()]), &[&word(1)[..], &long(1), &1.5f64.to_le_bytes()].concat());
    answers(QueryResult::Tokens(vec![258], true), &[&word(2)[..], &long(1), &word(258), &[1]].concat());
}
