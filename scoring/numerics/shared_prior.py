"""The posterior of a Dirichlet prior that questions share, given their counts.

The model and the hyperprior are in the docstring of ``empirical.py``. Inputs are taken as checked:
counts (B, M, C + 1), B matrices of one stack. Sums over the concentration s, and for two outcomes
over the mean q, are quadratures. For more outcomes the posterior of q given s is taken as the
Dirichlet with the same mode and curvature, which is exact for s -> 0 and s -> infinity.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy

from bayes_at_n.scoring.numerics.inputs import Floats, Ints

# The hyperprior of s is s0 / (s0 + s)^2, whose median is s0; the nodes lie between the limits.
# That of q is Dirichlet(1/(C + 1), ...), of the weight of one trial.
TYPICAL = 100.0
LIMITS = (1e-3, 1e6)

# Nodes of the quadratures over log s and over q, and how many numbers one block may hold.
S_NODES, Q_NODES = 25, 24
BLOCK = 4_000_000

# Questions with more trials than this many times M are summed question by question.
LONG = 8

# log (x (x + 1) ... (x + n - 1)) and its derivatives: as differences of these functions at x + n
# and x, and as sums of those terms over x, ..., x + n - 1.
Function: TypeAlias = Callable[[Floats], Any]
GAMMAS: tuple[Function, ...] = (  # looked up when called: scipy loads its parts at their first use
    lambda x: scipy.special.gammaln(x),
    lambda x: scipy.special.psi(x),
    lambda x: scipy.special.zeta(2.0, x),
)
TERMS: tuple[Function, ...] = (np.log, np.reciprocal, lambda x: -1.0 / (x * x))


def blocks(counts: Ints) -> list[Ints]:
    """Cut a stack (B, M, C + 1) into blocks whose intermediate arrays fit into memory."""
    questions, categories = counts.shape[1:]
    terms = min(int(counts.max()) + 1, LONG * questions)
    per_matrix = S_NODES * max(categories * questions, categories * terms, Q_NODES * terms)
    return np.array_split(counts, min(len(counts), -(-len(counts) * per_matrix // BLOCK)))


def posterior(counts: Ints) -> tuple[Floats, Floats, Floats, Floats]:
    """Compute the posterior of s and q as a finite mixture over nodes of log s.

    Of counts (B, M, C + 1): log s (B, S), its weights (B, S), which add up to 1, and mean and
    covariance of q given s, (B, S, C + 1) and (B, S, C + 1, C + 1).
    """
    log_s = np.tile(np.log(np.geomspace(*LIMITS, S_NODES)), (len(counts), 1))
    density, q, cov = _given(counts, log_s)
    # Many questions leave a posterior of log s that falls between the nodes: place them anew.
    for _ in range(8):
        likely = density > density.max(axis=-1, keepdims=True) - 12
        coarse = np.flatnonzero(likely.sum(axis=-1) < 8)
        if coarse.size == 0:
            break
        first = np.maximum(likely[coarse].argmax(axis=-1) - 1, 0)
        last = np.minimum(S_NODES - likely[coarse, ::-1].argmax(axis=-1), S_NODES - 1)
        log_s[coarse] = np.linspace(log_s[coarse, first], log_s[coarse, last], S_NODES, axis=-1)
        density[coarse], q[coarse], cov[coarse] = _given(counts[coarse], log_s[coarse])
    weight: Floats = scipy.special.softmax(density, axis=-1)
    return log_s, weight, q, cov


def _given(counts: Ints, log_s: Floats) -> tuple[Floats, Floats, Floats]:
    """log of the posterior density of log s, up to a constant; mean and covariance of q."""
    scheme = _two_outcomes if counts.shape[-1] == 2 else _many_outcomes
    evidence, q, cov = scheme(counts, np.exp(log_s))
    density = evidence + log_s - 2 * np.logaddexp(np.log(TYPICAL), log_s)
    density[:, [0, -1]] -= np.log(2)  # the trapezoidal rule
    return density, q, cov


def _two_outcomes(counts: Ints, s: Floats) -> tuple[Floats, Floats, Floats]:
    """log p(n | s), mean and covariance of q given s (B, S): quadrature over q.

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
    signs = np.array([[1.0, -1.0], [-1.0, 1.0]])
    return evidence, np.moveaxis(mean, 0, -1), var[..., None, None] * signs


def _many_outcomes(counts: Ints, s: Floats) -> tuple[Floats, Floats, Floats]:
    """The same for any number of outcomes, by a Dirichlet with the mode and curvature of f.

    f, the log posterior of q in log-ratio coordinates, is a sum of concave functions of each q_k;
    a Dirichlet with mean q and sum kappa has f_kk = -kappa / q_k, and kappa is set so that the
    determinants of the two Hessians on sum q = 1 are equal.
    """
    q, second = _mode(counts, s)
    inverse = -1 / second
    total = inverse.sum(axis=-1)
    free = max(q.shape[-1] - 1, 1)
    kappa = np.exp((np.log(q / inverse).sum(axis=-1) + np.log(total)) / free)
    cov = inverse[..., None] * (np.eye(q.shape[-1]) - (inverse / total[..., None])[..., None, :])
    nu = kappa[..., None] * q
    top = _by_category(counts, s[..., None] * q, 0).sum(axis=-1) - _rising(s, counts.sum(axis=-1))
    volume = scipy.special.gammaln(nu).sum(axis=-1) - scipy.special.gammaln(kappa)
    evidence = top + ((1 / q.shape[-1] - nu) * np.log(q)).sum(axis=-1) + volume
    return evidence, q, cov * (kappa / (kappa + 1))[..., None, None]


def _mode(counts: Ints, s: Floats) -> tuple[Floats, Floats]:
    """The mode of f and its second derivatives f_kk there, each (B, S, C + 1)."""
    q, _ = _pooled(counts, s)
    q = (q + 1e-3) / (q + 1e-3).sum(axis=-1, keepdims=True)
    scale, hyper = s[..., None], 1 / q.shape[-1]
    for _ in range(100):
        first = scale * _by_category(counts, scale * q, 1) + hyper / q
        second = scale**2 * _by_category(counts, scale * q, 2) - hyper / q**2
        multiplier = (first / second).sum(axis=-1) / (1 / second).sum(axis=-1)
        newton = q + (multiplier[..., None] - first) / second
        # Where Newton's step is too long, a step of the EM algorithm, which always climbs.
        climb = q * first / (q * first).sum(axis=-1, keepdims=True)
        step = np.where((newton > q / 3).all(axis=-1, keepdims=True), newton, climb)
        change = np.abs(step / q - 1).max()
        q = step
        if change < 1e-9:
            break
    return q, second


def _pooled(counts: Ints, s: Floats) -> tuple[Floats, Floats]:
    """The outcomes of all questions weighted as s has it, and how many trials they are worth.

    A question's share of outcome k has variance q_k (1 - q_k) (s + N) / ((s + 1) N) around q_k.
    """
    weight = (s + 1)[..., None] / (s[..., None] + counts.sum(axis=-1)[:, None, :])
    share = weight @ counts + 1e-9  # without any trial all outcomes are alike
    worth = share.sum(axis=-1)
    return share / worth[..., None], worth


def _by_category(counts: Ints, x: Floats, derivative: int) -> Floats:
    """:func:`_rising` of every category, x and result (B, S, C + 1)."""
    sums = [_rising(x[..., k], counts[..., k], derivative) for k in range(x.shape[-1])]
    return np.stack(sums, axis=-1)


def _rising(x: Floats, n: Ints, derivative: int = 0) -> Floats:
    """Sum over questions of log (x (x + 1) ... (x + n_a - 1)), or its first or second derivative.

    x and the sums have shape (B, P), the counts n shape (B, M).
    """
    most, questions = int(n.max()), n.shape[-1]
    if most > LONG * questions:
        gamma = GAMMAS[derivative]
        sums: Floats = (gamma(x[..., None] + n[:, None, :]) - gamma(x)[..., None]).sum(axis=-1)
        return sums
    # How many questions have a count above j: all of those share the term with x + j.
    cell = n + np.arange(len(n))[:, None] * (most + 1)
    tally = np.bincount(cell.ravel(), minlength=len(n) * (most + 1)).reshape(len(n), -1)
    above = tally[:, ::-1].cumsum(axis=-1)[:, -2::-1].astype(np.float64)
    terms = TERMS[derivative](x[..., None] + np.arange(most))
    shared: Floats = (terms @ above[..., None])[..., 0]
    return shared
