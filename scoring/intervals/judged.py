"""Correct a judge's mean score by human labels of a sample of attempts.

A judge (a grader, a verifier, a panel) scores each of n attempts, f_i from 0 to 1. Humans label m
of them, y_i from 0 to 1, drawn with known inclusion probabilities c_i. Two estimators:

- :func:`prediction_powered` is unbiased whatever the judge's errors depend on, and takes scores and
  labels between 0 and 1. Use it by default.
- :func:`misclassification` models the errors: within a group (by length, say), they are equally
  likely for all attempts with the same score, 0 or 1. It also estimates the judge's sensitivity and
  specificity by group, and its interval is narrower where errors are rare or labels few.

Both take a sample that :func:`labeled` checked. Attempts are trials of questions. With
``questions`` both intervals are for the mean over *these* questions of the probability of a correct
attempt by human labels, like :func:`scoring.avg` and Bayes@N; without, for these very attempts.
``benchmarks/judged.py`` measures coverage and width.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.numerics.inputs import (
    UNIT,
    Floats,
    Ints,
    check_confidence,
    check_probabilities,
    check_whole,
    nonnegative_array,
)
from bayes_at_n.scoring.numerics.results import Summary, result, within

DRAWS = 4_000  # of a posterior
_UNIFORM = 0.5  # share of a sample that is drawn uniformly


class Corrected(NamedTuple):
    """Result of :func:`prediction_powered`."""

    value: float  # may lie outside 0..1, unlike the ends
    sigma: float
    low: float
    high: float
    rate: float  # lambda: the weight of the judge's scores, 0 (labels alone) to 1
    pool: Summary | None  # for the pool that questions are a sample of; None: without questions
    freedom: float  # degrees of freedom of sigma

    def normal_sigma(self, z: float) -> float:
        """Return the sigma of which z are as far as Student's quantile of that tail (Howe 1974)."""
        return self.sigma * float(scipy.special.stdtrit(self.freedom, scipy.special.ndtr(-z)) / -z)


class Labeled(NamedTuple):
    """A judge's scores of n attempts, and human labels of m; made by :func:`labeled`."""

    f: Floats  # (n,) the judge's scores
    y: Floats  # (m,) the labels
    at: Ints  # (m,) positions of the labeled
    w: Floats  # (n,) weights of attempts; sum 1
    c: Floats  # (m,) inclusion probabilities of the labeled
    rows: Ints | None  # (n,) the question of each attempt, 0..M-1

    @property
    def shares(self) -> Floats:
        """Return the weights of labels, (m,): w / c, scaled to the sum 1 (Hajek 1971)."""
        shares = self.w[self.at] / self.c
        return np.asarray(shares / shares.sum())

    def parts(self, rate: float, value: float) -> Floats:
        """Split a corrected value into what each attempt adds to it, (n,)."""
        shift = value - rate * float(self.w @ self.f)
        part = self.w * (rate * self.f + shift)
        part[self.at] += self.shares * (self.y - rate * self.f[self.at] - shift)
        return np.asarray(part)

    def of_trials(self, chance: Floats) -> float:
        """Return the variance that trials add, from each attempt's `chance` to be correct, (n,).

        Of a question it is that of its mean chance, to which two attempts of the overall mean are
        added: a single trial, or a few that agree, do not show that a question's trials never vary.
        The expected value is right where all questions are alike, else larger.
        """
        if self.rows is None:
            return 0.0
        many, size = np.bincount(self.rows), np.bincount(self.rows, self.w)
        own, overall = np.bincount(self.rows, self.w * chance) / size, float(self.w @ chance)
        mean = (many * own + 2 * overall) / (many + 2)
        spread = mean * (1 - mean) / (1 - many / (many + 2) ** 2)
        return float((size**2 * spread / many).sum())


def labeled(
    predicted: npt.ArrayLike,
    labels: npt.ArrayLike,
    at: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    chances: npt.ArrayLike | None = None,
    questions: npt.ArrayLike | None = None,
) -> Labeled:
    """Check a judge's scores of all attempts, and the labels of a sample.

    Args:
        predicted: the judge's scores, 0 to 1, shape (n,).
        labels: human labels, 0 to 1, (m,).
        at: the labeled attempts, distinct positions 0..n-1, (m,).
        weights: of attempts, (n,), with sum 1; None: 1/n.
        chances: inclusion probabilities of the labeled, (m,), not depending on labels; None: m/n.
        questions: the question of each attempt, (n,); None: no variance of trials.

    Raises ValueError: no label, a position twice, other numbers.
    """
    f, y = check_probabilities(predicted, "predicted"), check_probabilities(labels, "labels")
    place = np.asarray(at)
    if f.ndim != 1 or y.ndim != 1 or place.shape != y.shape:
        raise ValueError("pass predictions (n,), and labels (m,) at positions (m,), one at least")
    if place.dtype.kind not in "iu" or len(np.unique(place)) < len(place):
        raise ValueError("at: must be positions, each once")
    if place.min() < 0 or place.max() >= f.size:
        raise ValueError(f"at: must be positions 0..{f.size - 1}")
    w = np.full(f.size, 1 / f.size) if weights is None else nonnegative_array(weights, "weights")
    if w.shape != f.shape or abs(w.sum() - 1) > 1e-9:
        raise ValueError("weights: must be one for each prediction, with sum 1")
    share = np.full(y.size, y.size / f.size) if chances is None else np.asarray(chances)
    c = check_probabilities(share, "chances")
    if c.shape != y.shape or not c.all():
        raise ValueError("chances: must be one for each label, above 0")
    rows = None if questions is None else np.unique(np.asarray(questions), return_inverse=True)[1]
    return Labeled(f, y, place, w, c, rows)


def prediction_powered(
    sample: Labeled,
    confidence: float = 0.95,
    clusters: npt.ArrayLike | None = None,
    rate: float | None = None,
) -> Corrected:
    """Estimate the mean label from a judge's scores of all attempts and labels of a sample.

    ``confidence`` is that of the intervals, in (0, 1); ``clusters``, (n,), of attempts, are for the
    interval on similar questions (by default questions); ``rate`` is lambda, by default tuned.

    With s_i = w_i / c_i, scaled to the sum 1 over the sample::

        value = lambda sum_all w_i f_i + sum_sample s_i (y_i - lambda f_i)

    Whatever the judge's errors, the expected value is sum_all w_i y_i, up to a bias of 1/m of sigma
    where chances or weights differ. The tuned lambda has the least variance, cut off at 0 and 1 (as
    in PPI++: a useless judge costs nothing); 1 is plain prediction-powered inference, 0 the labels
    alone. The interval has the variance of the sample, plus that of trials. So that a sample
    without errors does not claim that there are none, one error of each kind is added (as Agresti
    and Coull 1998 do for a share); it is Student's with the effective number of labels.

    Sources: Angelopoulos et al. 2023, arXiv 2301.09633, and 2311.01453 (lambda); Zrnic and Candes
    2024, arXiv 2403.03208 (chances); Sarndal, Swensson and Wretman 1992, chapter 6 (variance).

    >>> sample = labeled([1, 1, 1, 0, 0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 3, 4])
    >>> found = prediction_powered(sample, rate=1)
    >>> round(found.value, 4), found.low < found.value < found.high
    (0.375, True)
    """
    s, level = sample, check_confidence(confidence)
    g, f, y, m = s.shares, s.f[s.at], s.y, s.y.size
    more = np.append(g, [1 / m] * 2) * m / (m + 2)  # with an error of each kind
    said, true = np.append(f, [1.0, 0.0]), np.append(y, [0.0, 1.0])
    left = 1 - np.append(s.c, [s.c.mean()] * 2)
    df, dy = said - more @ said, true - more @ true
    tuned = np.clip((more**2 * df * dy).sum() / (more**2 * df**2).sum(), 0, 1)
    lam = float(tuned if rate is None else rate)
    base, shift = lam * float(s.w @ s.f), float(g @ (y - lam * f))
    moved = float(more @ (true - lam * said))
    rest = true - lam * said - moved
    sampled = float((more**2 * rest**2 * left).sum()) * (m + 2) / m
    padding = sampled - float((g**2 * (y - lam * f - shift) ** 2 * left[:m]).sum())
    trials = s.of_trials((moved + lam * s.f).clip(0, 1))
    sigma = (sampled + trials) ** 0.5
    freedom = max(1 / float((more**2).sum()) - 2, 1.0)  # of the effective number of labels
    reach = float(-scipy.special.stdtrit(freedom, (1 - level) / 2)) * sigma
    middle = base + shift + left.mean() * (moved - shift)
    drawn = s.rows if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1]
    pool = None
    if drawn is not None:
        parts = s.parts(lam, base + shift), s.w
        sums, size = (np.bincount(drawn, of).astype(np.float64) for of in parts)
        pool = _pool(sums, size, (middle, sigma, max(padding, 0.0), freedom), level)
    low, high = (within(middle + side * reach, UNIT) for side in (-1, 1))
    return Corrected(base + shift, sigma, low, high, lam, pool, freedom)


class Misclassified(NamedTuple):
    """Result of :func:`misclassification`: posterior means, standard deviations, quantiles."""

    score: Summary
    sensitivity: Summary  # P(judged correct | correct), arrays (G,) by group
    specificity: Summary  # P(judged wrong | wrong), likewise


def misclassification(
    sample: Labeled, confidence: float = 0.95, groups: npt.ArrayLike | None = None
) -> Misclassified:
    """Estimate the mean label, and the judge's errors by group, from scores 0 and 1.

    ``groups``, (n,), are whole numbers 0..G-1, such as short and long (one group by default). With
    W_gf the weight of the attempts of group g with score f, and q_gf the probability that one is
    correct::

        q_gf ~ Beta(1/2 + correct, 1/2 + incorrect)       of the labels in that cell
        score       = sum_gf W_gf q_gf
        sensitivity = W_g1 q_g1 / sum_f W_gf q_gf,  specificity likewise

    Labels with unequal chances count s_i, scaled to their effective number (Kish 1965), so that the
    cells need not explain the chances. The trials of questions add their variance. Posterior by
    4,000 seeded draws. Raises ValueError: scores other than 0 and 1. Source: Gelman et al.,
    Bayesian Data Analysis, section 8.3 (a stratified sample whose strata are the judge's scores,
    with Jeffreys' prior).

    >>> sample = labeled([1] * 60 + [0] * 40, [1] * 9 + [0] + [0] * 10, range(50, 70))
    >>> found = misclassification(sample)
    >>> [round(x, 2) for x in found.score], round(float(found.sensitivity.value[0]), 2)
    ([0.54, 0.06, 0.4, 0.62], 0.97)
    """
    s = sample
    if not np.isin(s.f, (0, 1)).all():
        raise ValueError("predicted: pass 0 and 1")
    group = np.zeros(s.f.size, np.int64) if groups is None else np.asarray(groups)
    cell, rng = (2 * group + s.f).astype(np.int64), np.random.default_rng(0)
    many = 2 * (int(group.max()) + 1)
    W = np.bincount(cell, s.w, many)
    own, g = cell[s.at], s.shares
    total, squares = (np.bincount(own, of, many) for of in (g, g**2))
    size = total**2 / np.maximum(squares, 1e-300)
    mean = np.bincount(own, g * s.y, many) / np.maximum(total, 1e-300)
    hits = size * mean
    q = rng.beta(0.5 + hits, 0.5 + (size - hits).clip(0), (DRAWS, many))
    left = 1 - np.bincount(own, minlength=many) / np.maximum(np.bincount(cell, minlength=many), 1)
    q = q.mean(axis=0) + (q - q.mean(axis=0)) * left**0.5  # what is labeled is known
    noise = s.of_trials(q.mean(axis=0)[cell]) ** 0.5
    right, wrong = (part.reshape(DRAWS, -1, 2) for part in (W * q, W * (1 - q)))
    score = (right.sum(axis=(1, 2)) + noise * rng.standard_normal(DRAWS)).clip(0, 1)
    sensitivity, specificity = (
        part[..., word] / np.maximum(part.sum(axis=2), 1e-300)  # a group may be empty
        for part, word in ((right, 1), (wrong, 0))
    )
    tail = (1 - check_confidence(confidence)) / 2

    def posterior(draws: Floats) -> Summary:
        low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
        return Summary(*map(result, (draws.mean(axis=0), draws.std(axis=0), low, high)))

    return Misclassified(*map(posterior, (score, sensitivity, specificity)))


def label_chances(doubts: npt.ArrayLike, size: int, left: npt.ArrayLike | None = None) -> Floats:
    """Compute inclusion probabilities of n attempts for ``size`` labels to draw next, (n,).

    ``doubts``, (n,), are estimates of the judge's squared error, 0 to 1: half of the labels are
    drawn uniformly, so that no estimate can hide an error, half in proportion to sqrt(doubt_i),
    which is best for :func:`prediction_powered` where the estimates are right. ``left``, (n,),
    bool, are attempts not drawn before (all by default): their probabilities have the sum
    ``size``, and the others have what the same rule gives. With probability c in earlier draws
    and q in this one, an attempt is included with probability 1 - (1 - c) (1 - q). Raises
    ValueError: more labels than attempts left. Source: Zrnic and Candes 2024, arXiv 2403.03208,
    section 3, after Neyman 1934.

    >>> label_chances([0.25, 0.25, 0.01, 0.01], size=2).round(3).tolist()
    [0.667, 0.667, 0.333, 0.333]
    """
    doubt = check_probabilities(doubts, "doubts")
    free = np.ones(doubt.size, bool) if left is None else np.asarray(left, bool)
    if check_whole(size, "size", least=1) > free.sum():
        raise ValueError(f"size is {size}: there are {free.sum()} attempts left")
    focus = np.sqrt(doubt) + 1e-12
    chance = _UNIFORM / doubt.size + (1 - _UNIFORM) * focus / focus.sum()
    sure = np.zeros(doubt.size, bool)
    while True:  # those above 1 are sure, and the rest share what is left
        rest = size - (sure & free).sum()
        share = rest * chance / max(chance[~sure & free].sum(), 1e-300)
        if not (above := ~sure & free & (share > 1)).any():
            return np.asarray(np.where(sure, 1.0, share.clip(max=1)))
        sure |= above


def drawn_sample(chances: npt.ArrayLike, rng: np.random.Generator) -> Ints:
    """Draw positions with inclusion probabilities (n,) of sum m, in random order: (m,).

    Systematic sampling in a random order, which keeps each probability exactly. Source: Madow
    1949; Hartley and Rao 1962 for the order.

    >>> sorted(drawn_sample([1, 0.5, 0.5, 0], np.random.default_rng(0)).tolist())
    [0, 2]
    """
    order = rng.permutation(len(chance := check_probabilities(chances, "chances")))
    ends = np.cumsum(chance[order])
    hits = np.searchsorted(ends, rng.random() + np.arange(round(ends[-1])), side="right")
    return np.asarray(rng.permutation(order[hits.clip(max=ends.size - 1)]))


def _pool(sums: Floats, size: Floats, fixed: tuple[float, ...], level: float) -> Summary:
    """Compute the interval for the pool of clusters, from each one's part of the value and weight.

    Two clusters are added, and sigma is at least that of fixed questions, as in ``pool_ci``;
    ``fixed``: of that interval the middle, sigma, the variance that its added errors bring, and the
    degrees of freedom.
    """
    middle, sigma, padding, freedom = fixed
    value, clusters = float(sums.sum()), size.size
    off = np.append(sums - size * value, [-value / clusters, (1 - value) / clusters])
    off -= off.mean()
    spread = ((off**2).sum() * (clusters + 2) / (clusters + 1) + padding) ** 0.5
    own = (sums - size * value) @ (sums - size * value) * clusters / max(clusters - 1, 1)
    quantile = -scipy.special.stdtrit(min(clusters + 1, freedom), (1 - level) / 2)
    reach = float(quantile) * max(spread, sigma)
    ends = (within(middle + side * reach, UNIT) for side in (-1, 1))
    return Summary(value, max(float(own) ** 0.5, sigma), *ends)
