"""Makes logistic.json with scikit-learn: python tests/reference/logistic.py   (made with scikit-learn 1.9.1)

Multinomial logistic regression on standardised features, for a strong and a weak penalty; coefficients and intercepts
are folded back, so that they are for features as they are. Intercepts are given less their mean.
"""

import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

DOCUMENTS, PATHS = 240, 4


def made_up():
    """Documents of four kinds that overlap; features of different size, one far from zero, one that never varies."""
    dice = np.random.default_rng(3)
    labels = dice.choice(PATHS, size=DOCUMENTS, p=[0.4, 0.3, 0.2, 0.1])
    centres = dice.normal(size=(PATHS, 5))
    features = centres[labels] + dice.normal(size=(DOCUMENTS, 5))
    features = features * [1.0, 30.0, 0.01, 2.0, 0.5] + [0.0, 1000.0, 0.0, -1.0, 3.0]
    features = np.concatenate([features, np.full((DOCUMENTS, 1), 7.0)], axis=1)
    return features.astype(np.float32), labels


def fit(features, labels, l2):
    """The mean loss plus l2 / 2 times the sum of squared weights, which scikit-learn takes as C."""
    scaler = StandardScaler().fit(features)
    scaler.scale_[-1] = np.inf  # never varies
    rows = scaler.transform(features)
    model = LogisticRegression(C=1 / (l2 * DOCUMENTS), solver="lbfgs", tol=1e-10, max_iter=100_000).fit(rows, labels)
    weights = model.coef_ / scaler.scale_
    bias = model.intercept_ - weights @ scaler.mean_
    return {
        "l2": l2,
        "weights": weights.ravel().tolist(),
        "bias": (bias - bias.mean()).tolist(),
        "probabilities": model.predict_proba(rows).ravel().tolist(),
    }


features, labels = made_up()
fits = [fit(features.astype(np.float64), labels, l2) for l2 in (0.1, 1e-3)]
content = {
    "width": features.shape[1],
    "paths": PATHS,
    "features": [float(f"{value:.9g}") for value in features.ravel()],
    "labels": labels.tolist(),
    "fits": fits,
}
with open(Path(__file__).parent / "logistic.json", "w") as file:
    json.dump(content, file, separators=(",", ":"))
    file.write("\n")
