//! Features of documents, batch by batch. The caller passes the model in.

/// Documents per batch.
const BATCH: usize = 64;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FeaturesError {
    #[error("{found} values came for the features of {documents} documents of width {width}")]
    Count { documents: usize, width: usize, found: usize },
    #[error("the features of document {document} are not finite: the ancestor has diverged; lower its learning rate")]
    NotFinite { document: usize },
}

/// The features of documents by their prefixes, row-major `[prefixes, width]`. `extract` gets at most 64 prefixes at a
/// time, in order, and returns `width` values for each.
pub fn features_of(
    prefixes: &[&[u32]],
    width: usize,
    extract: &mut dyn FnMut(&[&[u32]]) -> Vec<f32>,
) -> Result<Vec<f32>, FeaturesError> {
    let mut features = Vec::with_capacity(prefixes.len() * width);
    for (number, batch) in prefixes.chunks(BATCH).enumerate() {
        let rows = extract(batch);
        if rows.len() != batch.len() * width {
            return Err(FeaturesError::Count { documents: batch.len(), width, found: rows.len() });
        }
        if let Some(at) = rows.iter().position(|value| !value.is_finite()) {
            return Err(FeaturesError::NotFinite { document: number * BATCH + at / width });
        }
        features.extend(rows);
    }
    Ok(features)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_order_however_many_batches() {
        let tokens: Vec<[u32; 1]> = (0..150).map(|i| [i]).collect();
        let prefixes: Vec<&[u32]> = tokens.iter().map(|prefix| &prefix[..]).collect();
        let mut sizes = Vec::new();
        let mut extract = |batch: &[&[u32]]| {
            sizes.push(batch.len());
            batch.iter().flat_map(|prefix| [prefix[0] as f32, 1.0]).collect()
        };
        let features = features_of(&prefixes, 2, &mut extract).unwrap();
        assert_eq!(sizes, [64, 64, 22]);
        assert!((0..150).all(|i| features[2 * i] == i as f32));
    }

    #[test]
    fn a_diverged_ancestor_is_reported() {
        let prefixes: [&[u32]; 2] = [&[1], &[2]];
        let error = features_of(&prefixes, 1, &mut |_| vec![0.0, f32::NAN]).unwrap_err();
        assert_eq!(error, FeaturesError::NotFinite { document: 1 });
        let error = features_of(&prefixes, 3, &mut |_| vec![0.0; 5]).unwrap_err();
        assert_eq!(error, FeaturesError::Count { documents: 2, width: 3, found: 5 });
    }
}
