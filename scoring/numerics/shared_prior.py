"""The posterior of a Beta prior that questions share, given their counts.

The model and the hyperprior are in the docstring of ``empirical.py``. Inputs are taken as checked:
counts of wrong and right (B, M, 2), B matrices of one stack. Sums over the concentration s and over
the mean q are quadratures.
"""

import numpy as np
import scipy

from scoring.numerics.inputs import Floats, Ints

# The hyperprior of s is s0 / (s0 + s)^2, whose median is s0; the nodes lie between the limits.
# That of q is Beta(1/2, 1/2), of the weight of one trial.
TYPICAL = 100.0
LIMITS = (1e-3, 1e6)

# Nodes of the quadratures over log s and over q, and how many numbers one block may hold.
S_NODES, Q_NODES = 25, 24
BLOCK = 4_000_000

# Questions with more trials than this many times M are summed question by question.
LONG = 8


def blocks(counts: Ints) -> list[Ints]:
    """Cut a stack (B, M, 2) into blocks whose intermediate arrays fit into memory."""
    questions = counts.shape[1]
    terms = min(int(counts.max()) + 1, LONG * questions)
    per_matrix = S_NODES * max(2 * questions, Q_NODES * terms)
    return np.array_split(counts, min(len(counts), -(-len(counts) * per_matrix // BLOCK)))


def posterior(counts: Ints) -> tuple[Floats, Floats, Floats, Floats]:
    """The posterior of s and q as a finite mixture over nodes of log s.

    Of counts (B, M, 2): log s (B, S), its weights (B, S), which add up to 1, and given s the mean
    of q (B, S, 2) and the variance of either entry (B, S).
    """
    log_s = np.tile(np.log(np.geomspace(*LIMITS, S_NODES)), (len(counts), 1))
    density, q, var = _given(counts, log_s)
    # Many questions leave a posterior of log s that falls between the nodes: place them anew.
    for _ in range(8):
        likely = density > density.max(axis=-1, keepdims=True) - 12
        coarse = np.flatnonzero(likely.sum(axis=-1) < 8)
        if coarse.size == 0:
            break
        first = np.maximum(likely[coarse].argmax(axis=-1) - 1, 0)
        last = np.minimum(S_NODES - likely[coarse, ::-1].argmax(axis=-1), S_NODES - 1)
        log_s[coarse] = np.linspace(log_s[coarse, first], log_s[coarse, last], S_NODES, axis=-1)
        density[coarse], q[coarse], var[coarse] = _given(counts[coarse], log_s[coarse])
    weight: Floats = scipy.special.softmax(density, axis=-1)
    return log_s, weight, q, var


def _given(counts: Ints, log_s: Floats) -> tuple[Floats, Floats, Floats]:
    """log of the posterior density of log s, up to a constant; mean and variance of q."""
    evidence, q, var = _over_q(counts, np.exp(log_s))
    density = evidence + log_s - 2 * np.logaddexp(np.log(TYPICAL), log_s)
    density[:, [0, -1]] -= np.log(2)  # the trapezoidal rule
    return density, q, var


def _over_q(counts: Ints, s: Floats) -> tuple[Floats, Floats, Floats]:
    """log p(n | s), mean and variance of q given s (B, S): quadrature over q.

    In u, where q = (cos^2 u/2, sin^2 u/2), the hyperprior is uniform, the likelihood equally wide
    everywhere and symmetric about both ends, so that the midpoint rule converges exponentially.
    """
    wrong, right = counts[..., 0], counts[..., 1]
    centre, worth = _pooled(counts, s)
    middle, reach = 2 * np.arcsin(np.sqrt(centre[..., 1])), 8 / np.sqrt(worth)
    low, high = np.maximum(middle - reach, 0.0), np.minimum(middle + reach, np.pi)
    u = low[..., None] + (high - low)[..., None] * ((np.arange(Q_NODES) + 0.5) / Q_NODES)
    q = np.stack([np.cos(u / 2) ** 2, np.sin(u / 2) ** 2])
    x = (s[..., None] * q).reshape(2, len(s), -1)
    logs = (_rising(x[0], wrong) + _rising(x[1], right)).reshape(u.shape)
    evidence = scipy.special.logsumexp(logs, axis=-1) - _rising(s, wrong + right)
    evidence = evidence + np.log(high - low)
    weight = scipy.special.softmax(logs, axis=-1)
    mean = (weight * q).sum(axis=-1)
    var = (weight * (q[1] - mean[1][..., None]) ** 2).sum(axis=-1)
    return evidence, np.moveaxis(mean, 0, -1), var


def _pooled(counts: Ints, s: Floats) -> tuple[Floats, Floats]:
    """The outcomes of all questions weighted as s has it, and how many trials they are worth.

    A question's share of outcome k has variance q_k (1 - q_k) (s + N) / ((s + 1) N) around q_k.
    """
    weight = (s + 1)[..., None] / (s[..., None] + counts.sum(axis=-1)[:, None, :])
    share = weight @ counts + 1e-9  # without any trial all outcomes are alike
    worth = share.sum(axis=-1)
    return share / worth[..., None], worth


def _rising(x: Floats, n: Ints) -> Floats:
    """Sum over questions of log (x (x + 1) ... (x + n_a - 1)).

    x and the sums have shape (B, P), the counts n shape (B, M).
    """
    most, questions = int(n.max()), n.shape[-1]
    if most > LONG * questions:
        gamma = scipy.special.gammaln
        sums: Floats = (gamma(x[..., None] + n[:, None, :]) - gamma(x)[..., None]).sum(axis=-1)
        return sums
    # How many questions have a count above j: all of those share the term with x + j.
    cell = n + np.arange(len(n))[:, None] * (most + 1)
    tally = np.bincount(cell.ravel(), minlength=len(n) * (most + 1)).reshape(len(n), -1)
    above = tally[:, ::-1].cumsum(axis=-1)[:, -2::-1].astype(np.float64)
    terms = np.log(x[..., None] + np.arange(most))
    shared: Floats = (terms @ above[..., None])[..., 0]
    return shared
