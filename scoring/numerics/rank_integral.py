"""Quadrature over the scores of models with independent normal posteriors.

One set of nodes serves all K models of a row: the score axis is cut at mu_j + c sigma_j for every
model j and every c of ``CUTS``, so that in each piece every density and every distribution
function is smooth on the piece's own scale, however different the sigmas are, and Gauss-Legendre
converges fast. A model without uncertainty puts its mass on a single point, which no piece can
hold: it has nodes of its own at (mu_j, u), where u in (0, 1) orders the models tied there.
"""

from collections.abc import Callable

import numpy as np
import scipy

from scoring.numerics.inputs import Floats

# A normal has 2e-17 of its mass beyond the outermost cuts.
CUTS: Floats = np.linspace(-8.5, 8.5, 11)
# Below this share of a row's scale, sums of mu and sigma round too coarsely for the quadrature.
LEAST_SIGMA = 1e-8
# About 1 MB for each array of the quadrature (some 150 nodes per model), to stay in the cache.
ROWS_TIMES_SQUARED_MODELS = 1_000


def integrate(of_rows: Callable[[Floats, Floats], Floats], mu: Floats, sigma: Floats) -> Floats:
    """Apply a function of rows (B, K) to stacks (..., K), bounded in memory."""
    models = mu.shape[-1]
    # An empty stack still needs one row to give the result its shape.
    rows = max(1, mu.size // models)
    padded = [np.resize(v, (rows, models)) for v in (mu, sigma)]
    step = max(1, ROWS_TIMES_SQUARED_MODELS // models**2)
    whole = np.concatenate(
        [of_rows(*(v[i : i + step] for v in padded)) for i in range(0, rows, step)]
    )
    return whole[: mu.size // models].reshape(*mu.shape[:-1], *whole.shape[1:])


def ranks_of_rows(mu: Floats, sigma: Floats) -> Floats:
    """Probability (B, K, K) that model i has rank r + 1, from means and sigmas (B, K)."""
    mass, above = _nodes(mu, sigma)
    rows, models, nodes = mass.shape
    chances = np.empty((rows, models, models))

    def add(numbers: Floats, others: range) -> Floats:
        """The distribution of how many are above the node, with some more models."""
        for j in others:
            p = above[:, j, None, :]
            grown = np.zeros((rows, numbers.shape[1] + 1, nodes))
            grown[:, :-1] = numbers * (1 - p)
            grown[:, 1:] += numbers * p
            numbers = grown
        return numbers

    def leave_each_out(numbers: Floats, inside: range) -> None:
        """``numbers`` counts all models but those inside; half of them are added at a time."""
        if len(inside) == 1:
            i = inside[0]
            chances[:, i] = np.einsum("brq,bq->br", numbers, mass[:, i])
            return
        middle = len(inside) // 2
        left, right = inside[:middle], inside[middle:]
        leave_each_out(add(numbers, right), left)
        leave_each_out(add(numbers, left), right)

    leave_each_out(np.ones((rows, 1, nodes)), range(models))
    return chances


def wins_of_rows(mu: Floats, sigma: Floats) -> Floats:
    """Probability (B, K) that model i is the best: none of the others lies above it."""
    mass, above = _nodes(mu, sigma)
    below = np.concatenate([np.ones_like(above[:, :1]), 1 - above], axis=1)
    before = np.cumprod(below, axis=1)[:, :-1]
    below = np.concatenate([below[:, 1:], below[:, :1]], axis=1)
    after = np.cumprod(below[:, ::-1], axis=1)[:, ::-1][:, 1:]
    return np.asarray((mass * before * after).sum(axis=-1))


def _nodes(mu: Floats, sigma: Floats) -> tuple[Floats, Floats]:
    """The mass that each model has at each node, and its chance to lie above it: (B, K, nodes)."""
    rows, models = mu.shape
    mu = mu - mu.mean(axis=-1, keepdims=True)
    scale = (np.abs(mu) + sigma).max(axis=-1, keepdims=True)
    scale[scale == 0] = 1.0
    mu, sigma = mu / scale, sigma / scale
    certain = sigma < LEAST_SIGMA
    sigma = np.where(certain, 0.0, sigma)

    # More models make the Poisson-binomial probabilities sharper in x.
    points, weights = np.polynomial.legendre.leggauss(8 + 2 * int(np.sqrt(models)))
    cuts = np.sort((mu[..., None] + sigma[..., None] * CUTS).reshape(rows, -1), axis=-1)
    half = np.diff(cuts, axis=-1)[..., None] / 2
    x = (cuts[:, :-1, None] + half * (1 + points)).reshape(rows, -1)
    length = (half * weights).reshape(rows, -1)
    at, width = x[:, None, :], np.where(certain, 1.0, sigma)[..., None]
    deviation = (at - mu[..., None]) / width
    density = np.exp(-(deviation**2) / 2) / (np.sqrt(2 * np.pi) * width)
    mass = np.where(certain[..., None], 0.0, density) * length[:, None, :]
    above = np.where(certain[..., None], mu[..., None] > at, scipy.special.ndtr(-deviation))
    if not certain.any():
        return mass, above

    # Polynomials in u of degree K - 1: exact with this many points.
    points, weights = np.polynomial.legendre.leggauss(models // 2 + 1)
    u = np.tile((1 + points) / 2, models)
    at = np.repeat(mu, points.size, axis=-1)[:, None, :]
    own = np.repeat(np.eye(models), points.size, axis=-1) * np.tile(weights / 2, models)
    tied_mass = np.where(certain[..., None], own, 0.0)
    order = np.where(mu[..., None] == at, 1 - u, (mu[..., None] > at).astype(np.float64))
    share = scipy.special.ndtr((mu[..., None] - at) / width)
    tied_above = np.where(certain[..., None], order, share)
    return (
        np.concatenate([mass, tied_mass], axis=-1),
        np.concatenate([above, tied_above], axis=-1),
    )
