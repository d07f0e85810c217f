"""Makes kmeans.json with scikit-learn: python tests/reference/kmeans.py   (made with scikit-learn 1.9.1)

The best of 20 starts of k-means, on clouds that lie apart, whose centres are found by every good start, and on clouds
that overlap, where starts end in different places.
"""

import json
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

ROWS, WIDTH, CLUSTERS = 240, 4, 6


def clouds(apart):
    dice = np.random.default_rng(5)
    centres = apart * dice.normal(size=(CLUSTERS, WIDTH))
    kinds = dice.choice(CLUSTERS, size=ROWS, p=[0.3, 0.25, 0.2, 0.1, 0.1, 0.05])
    return (centres[kinds] + dice.normal(size=(ROWS, WIDTH))).astype(np.float32)


def fit(name, apart):
    rows = clouds(apart)
    model = KMeans(CLUSTERS, n_init=20, tol=0.0, max_iter=1000, random_state=1).fit(rows.astype(np.float64))
    return {
        "name": name,
        "rows": [float(f"{value:.9g}") for value in rows.ravel()],
        "centroids": model.cluster_centers_.ravel().tolist(),
        "inertia": model.inertia_,
    }


content = {"width": WIDTH, "clusters": CLUSTERS, "fits": [fit("apart", 8.0), fit("overlapping", 1.0)]}
with open(Path(__file__).parent / "kmeans.json", "w") as file:
    json.dump(content, file, separators=(",", ":"))
    file.write("\n")
