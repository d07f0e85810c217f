//! Why a network cannot read what it is given.

use tch::{Kind, TchError};

#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error("tokens must be a [batch, time] tensor of 64-bit integers, found {kind:?} {shape:?}")]
    Shape { kind: Kind, shape: Vec<i64> },
    #[error("{found} tokens exceed the context of {context}; cut the sequence")]
    TooLong { found: usize, context: usize },
    #[error("token {token} is outside the vocabulary of {vocabulary}; was this text encoded by another tokenizer?")]
    Token { token: i64, vocabulary: usize },
    #[error("an image of this network has {expected} bytes, found {found}; was it prepared with another side?")]
    Image { found: usize, expected: usize },
    #[error("this network reads images and cannot generate text; use evaluate or inspect with images")]
    NoText,
    #[error("this network reads text, not images")]
    NoImages,
    #[error("sequence {0} is empty")]
    Empty(usize),
    #[error("the frozen parts of this network, on which its adapters were trained, are missing")]
    NotComplete,
    #[error("the network: {0}")]
    Tensor(#[from] TchError),
}
