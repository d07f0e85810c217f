//! How many rows of logits are computed at once.

/// Limit of logits per chunk, on the CPU and on CUDA.
const CHUNK_VALUES: [usize; 2] = [1 << 21, 1 << 28];

/// Most rows whose logits are computed at once.
pub fn chunk_rows(vocabulary: i64, cuda: bool) -> i64 {
    let most = CHUNK_VALUES[usize::from(cuda)] as i64 / vocabulary.max(1);
    (most / 16 * 16).max(16)
}
