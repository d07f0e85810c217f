//! Values as they travel and are kept: frames, modules' states, pieces.

use pathswarm::compress::encode;
use pathswarm::config::{Codec, OuterMode};
use pathswarm::names::{BlobRef, ModuleId};
use pathswarm::outer::ModuleState;
use pathswarm::pieces::{PIECE_BYTES, PieceSet, Value, value_of};

use super::Seeds;

/// In the order in which the target counts them.
const CODECS: [Codec; 8] =
    [Codec::Fp32, Codec::Fp16, Codec::Int8, Codec::Int4, Codec::Int2, Codec::Sparse, Codec::TopK(64), Codec::TopK(1)];

/// Few of them large, most of them small or nothing.
fn values(count: usize) -> Vec<f32> {
    let value = |at: usize| match at % 64 {
        0 => 1.0 / (1 + at % 100) as f32,
        1..8 => (at % 7) as f32 * -1e-3,
        _ => 0.0,
    };
    (0..count).map(value).collect()
}

fn frame(codec: usize, count: usize) -> Vec<u8> {
    let mut input = encode(CODECS[codec], &values(count)).expect("the values can be sent");
    input.push(codec as u8);
    input.extend(&(count as u32).to_le_bytes()[..3]);
    input
}

fn pieces(bytes: u64, here: u32) -> [Vec<u8>; 2] {
    let contents: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    let blob = BlobRef::of(&contents);
    let named = [&blob.hash.0[..], &blob.bytes.to_le_bytes()].concat();
    let cut = contents.chunks(PIECE_BYTES as usize).zip(0..);
    let values: Vec<Value> = cut.map(|(piece, index)| value_of(index, piece)).collect();
    let mut set = PieceSet::none(values.len() as u32);
    for piece in 0..here {
        set.insert(piece);
    }
    [[values.as_flattened(), &named].concat(), [set.as_bytes(), &named].concat()]
}

pub fn add(seeds: &mut Seeds) {
    for codec in 0..CODECS.len() {
        for count in [0, 1, 300, 5_000] {
            seeds.add("frame", frame(codec, count));
        }
    }
    // Two chunks.
    [5, 7].into_iter().for_each(|codec| seeds.add("frame", frame(codec, (1 << 18) + 10)));
    let module = ModuleId { level: 0, expert: 0 };
    for mode in [OuterMode::Synchronous, OuterMode::Asynchronous] {
        for count in [0u16, 1, 20] {
            let state = ModuleState::initial(module, values(count.into()), mode);
            seeds.add("module_state", [state.encode(), count.to_le_bytes().to_vec()].concat());
        }
    }
    for (bytes, here) in [(0, 1), (100, 1), (PIECE_BYTES + 1, 1), (9 * PIECE_BYTES - 1, 7)] {
        pieces(bytes, here).into_iter().for_each(|input| seeds.add("pieces", input));
    }
}
