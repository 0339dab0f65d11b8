"""From a verifier's label log-probs to calibrated probabilities.

A verifier reads question, gold answer and response and puts its answer on one token: A (correct),
B (incorrect) or C (invalid). A leaning towards a label whatever it reads is taken away:

    p(y | x) = softmax((s_y - b_y) / T)

with the label log-probs s (a constant away from logits, which a softmax does not see), a baseline b
and a temperature T, fixed or fitted to labelled attempts. The baseline is what the verifier says
without any content, of A against B, or how much oftener it says a label of many attempts than is
right. Either may be wrong, so it is clipped: docs/verifier.md.

Sources: Zhao et al. 2021, "Calibrate Before Use", arXiv 2102.09690 (contextual); Fei et al. 2023,
arXiv 2305.19148 (domain); Zhou et al. 2024, arXiv 2309.17249 (batch); Hariri et al., "Don't
Pass@k", arXiv 2510.04265, appendix D (the formula).

A log-prob of -inf is a label that the verifier cannot say: probability 0; where all three are -inf
each label gets 1/3. A baseline of -inf is the limit of an ever lower one. NaN and +inf are a
ValueError everywhere.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LABELS = ("A", "B", "C")
LOWEST = float(np.log(np.finfo(np.float64).tiny))  # -708.4: the loss of a label of probability 0
FAR = -1e4  # an infinite baseline, far below every log-prob and still exact to 1e-12


def log_array(values: npt.ArrayLike, name: str) -> Floats:
    """Log-probs as float64 of shape (..., 3), finite or -inf; a damaged table may hold others.

    Raises ValueError: other numbers, or another last axis.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or array.shape[-1] != len(LABELS):
        raise ValueError(f"{name} has shape {array.shape}: the last axis must be A, B, C")
    if (bad := np.isnan(array) | (array == np.inf)).any():
        raise ValueError(f"{name} holds {array[bad][0]}: pass log-probs, finite or -inf")
    return array


def log_softmax(scores: Floats, temperature: float = 1.0) -> Floats:
    """Log of softmax(scores / temperature) over the last axis.

    A score of -inf gives -inf; a row of nothing else says nothing, so it gives log(1/3) each.
    """
    silent = np.isneginf(scores).all(axis=-1, keepdims=True)
    with np.errstate(over="ignore"):  # a tiny temperature: -inf is the right answer
        tempered = np.where(silent, 0.0, centred(scores) / temperature)
    return np.asarray(tempered - np.log(np.exp(tempered).sum(axis=-1, keepdims=True)))


def centred(scores: Floats) -> Floats:
    """Scores minus the largest of their row, so that no later inf - inf can arise."""
    top = scores.max(axis=-1, keepdims=True)
    return np.asarray(scores - np.where(np.isneginf(top), 0.0, top))


def scores_above(logprobs: Floats, baselines: npt.ArrayLike) -> Floats:
    """Log-probs minus baselines, which are broadcast to the shape of the log-probs."""
    base = log_softmax(log_array(baselines, "baselines"))
    return np.asarray(logprobs - np.maximum(base, FAR))


def picked(logs: Floats, labels: Ints) -> Floats:
    """The log-probability of each attempt's own label, shape (n,), never below LOWEST."""
    return np.asarray(np.maximum(logs[np.arange(len(labels)), labels], LOWEST))


TEMPERATURE = 1.5  # the fixed one of the paper's authors
CLIP = 1.0  # nats
SURE = 1.645  # standard errors: one side of 5 %
LEAST_LABELLED, LEAST_QUESTIONS = 10, 3  # of attempts that a temperature is fitted to
TEMPERATURES = (0.05, 20.0)  # where a fitted temperature is looked for


def direct(logprobs: npt.ArrayLike) -> Floats:
    """Probabilities among the three labels alone: softmax of the log-probs, no calibration.

    Log-probs (or logits) of A, B, C at the answer slot and the result have shape (..., 3).

    >>> import numpy as np
    >>> direct(np.log([0.6, 0.2, 0.0001])).round(4).tolist()
    [0.7499, 0.25, 0.0001]
    """
    return np.asarray(np.exp(log_softmax(log_array(logprobs, "logprobs"))))


def calibrate(
    logprobs: npt.ArrayLike, baselines: npt.ArrayLike, temperature: float = TEMPERATURE
) -> Floats:
    """Calibrated probabilities, softmax((s - b) / T), float64, shape (..., 3).

    ``logprobs`` s have shape (..., 3), and ``baselines`` b, as from :func:`baseline`,
    :func:`of_attempts` or :func:`clipped`, broadcast to them: (3,), or (M, 1, 3) for M questions of
    N trials. T is finite and above 0: above 1 all distributions are flatter, below 1 sharper; which
    label is the largest does not change.

    Source: arXiv 2510.04265, appendix D.

    A verifier that leans towards A even without a response:

    >>> import numpy as np
    >>> calibrate(np.log([0.6, 0.3, 0.1]), np.log([0.8, 0.1, 0.1]), temperature=1).round(4).tolist()
    [0.1579, 0.6316, 0.2105]
    """
    scores = scores_above(log_array(logprobs, "logprobs"), baselines)
    return np.asarray(np.exp(log_softmax(scores, temperature)))


def baseline(
    logprobs: npt.ArrayLike, average: Literal["probability", "logit"] = "probability"
) -> Floats:
    """One baseline, log scale, not normalized, float64 (..., 3), from several content-free strings.

    ``logprobs`` are under the full vocabulary, shape (strings, ..., 3), one string at least; the
    ``average`` is of their probabilities, not normalized first, or of the log-probs ("logit"):
    docs/verifier.md says what speaks for each.

    Source: arXiv 2102.09690, section 5.

    >>> import numpy as np
    >>> strings = np.log([[0.9, 0.05, 0.05], [0.5, 0.4, 0.1]])
    >>> np.exp(baseline(strings)).round(3).tolist()
    [0.7, 0.225, 0.075]
    >>> np.exp(baseline(strings, average="logit")).round(3).tolist()
    [0.671, 0.141, 0.071]
    """
    array = log_array(logprobs, "logprobs")
    if average == "logit":
        return np.asarray(array.mean(axis=0))
    return np.asarray(np.logaddexp.reduce(array, axis=0) - np.log(len(array)))


def of_attempts(logprobs: npt.ArrayLike, labels: Sequence[int] | Ints | None = None) -> Floats:
    """The baseline, float64 (3,), of n > 0 attempts: by how much each label is said too often.

    The mean of :func:`direct` over log-probs (n, 3), over the share of each label: of ``labels``,
    shape (n,), with half an attempt added to each, or a third where there are none, which presumes
    that all labels are equally frequent.

    Source: arXiv 2309.17249, section 3 (without labels).

    >>> import numpy as np
    >>> says = np.log([[0.8, 0.1, 0.1], [0.4, 0.5, 0.1]])
    >>> np.exp(of_attempts(says, [0, 1])).round(3).tolist()
    [1.4, 0.7, 0.7]
    """
    said = baseline(log_softmax(log_array(logprobs, "logprobs")))
    if labels is None:
        return np.asarray(said + np.log(len(LABELS)))
    counts = np.bincount(labels, minlength=len(LABELS)) + 0.5
    return np.asarray(said - np.log(counts / counts.sum()))


def a_against_b(baselines: npt.ArrayLike) -> Floats:
    """Baselines (..., 3) with the mean of A and B for C, which is 0 once they are centred.

    "Invalid" is the right label of a response without content, so to say C to it is no bias.

    >>> import numpy as np
    >>> b = clipped(a_against_b(np.log([0.0008, 0.0002, 0.999])))
    >>> b[:2].round(3).tolist(), bool(abs(b[2]) < 1e-9)
    ([0.693, -0.693], True)
    """
    a, b, _ = np.moveaxis(np.maximum(log_array(baselines, "baselines"), FAR), -1, 0)
    return np.stack([a, b, (a + b) / 2], axis=-1)


def clipped(baselines: npt.ArrayLike, limit: float | None = CLIP) -> Floats:
    """Baselines (..., 3) about their mean, none further from it than ``limit`` nats (None: any).

    With a limit no label changes that led by more than twice the limit. A label that a verifier
    cannot say, -inf, is not in the mean.

    >>> clipped([-9.2, -9.2, 0.0]).round(3).tolist()
    [-1.0, -1.0, 1.0]
    >>> clipped([-0.2, -1.2, -np.inf]).round(3).tolist()
    [0.5, -0.5, -1.0]
    """
    logs = log_softmax(log_array(baselines, "baselines"))
    sayable = np.isfinite(logs)  # not all labels, where a verifier lacks one
    middle = logs - logs.mean(axis=-1, keepdims=True, where=sayable)
    return np.asarray(np.clip(middle, *((FAR, None) if limit is None else (-limit, limit))))


def lowers_loss(
    logprobs: npt.ArrayLike,
    baselines: npt.ArrayLike,
    labels: Sequence[int] | Ints,
    groups: npt.ArrayLike,
    temperature: float = TEMPERATURE,
) -> bool:
    """Whether baselines lower the log-loss of labelled attempts by more than chance explains.

    By more than 1.64 standard errors, those of a mean over ``groups``, the question of each
    attempt, (n,): a wrong baseline passes once in twenty. False with fewer than two groups. Other
    arguments as for :func:`fit_temperature`.

    >>> import numpy as np
    >>> says, truth, questions = np.log([[0.6, 0.3, 0.1]] * 6), [0, 1, 1] * 2, [0] * 3 + [1] * 3
    >>> [lowers_loss(says, b, truth, questions) for b in ([0.5, -0.5, 0], [-0.5, 0.5, 0])]
    [True, False]
    """
    rows, truth = log_array(logprobs, "logprobs"), np.asarray(labels)
    units = np.unique(groups, return_inverse=True)[1]
    before, after = (
        picked(log_softmax(scores_above(rows, base), temperature), truth)
        for base in (np.zeros(len(LABELS)), baselines)
    )
    sums = np.bincount(units, weights=after - before)
    if len(sums) < 2:
        return False
    return bool(sums.mean() > SURE * sums.std(ddof=1) / np.sqrt(len(sums)))


class Fit(NamedTuple):
    """A fitted temperature."""

    temperature: float  # of the least negative log-likelihood
    stderr: float | None  # None where T is at an end: never wrong, or worse than chance
    fitted: int  # number of attempts that T was fitted to


def fit_temperature(
    logprobs: npt.ArrayLike,
    baselines: npt.ArrayLike,
    labels: Sequence[int] | Ints,
    groups: npt.ArrayLike,
) -> Fit:
    """The temperature of least negative log-likelihood of labelled attempts.

    With z = s - b and u = 1/T the loss of an attempt with label y is log(sum exp(u z)) - u z_y,
    convex in u, so the search over log T finds the one minimum. Attempts at one question are alike,
    so the standard error is that of scores summed within G questions: with H the sum of second
    derivatives in u, the variances of z under the calibrated probabilities, it is T^2 / H times the
    root of the sum of squares, times the root of G/(G - 1).

    Args:
        logprobs: label log-probs, shape (n, 3).
        baselines: broadcasts to ``logprobs``; zeros fit a temperature without a baseline.
        labels: what the verifier should have said, 0, 1, 2 for A, B, C, shape (n,); at least
            10, of two kinds.
        groups: integers, the question of each attempt, shape (n,), three at least.

    Raises ValueError: too few labels, kinds or groups, or scores that are equal for all labels.
    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", arXiv 1706.04599, section
    4.2.

    >>> import numpy as np
    >>> s = np.log([[0.98, 0.01, 0.01]] * 60 + [[0.01, 0.98, 0.01]] * 60)
    >>> fit = fit_temperature(s, np.zeros(3), [0] * 50 + [1] * 60 + [0] * 10, range(120))
    >>> fit.fitted, 1.5 < fit.temperature < 3
    (120, True)
    """
    scores = centred(scores_above(log_array(logprobs, "logprobs"), baselines))
    truth = np.asarray(labels)
    if len(truth) < LEAST_LABELLED:
        raise ValueError(f"labels has {len(truth)} entries: a fit needs {LEAST_LABELLED} at least")
    if len(np.unique(truth)) < 2:
        raise ValueError(f"labels are all {LABELS[truth[0]]}: a fit needs two kinds at least")
    if (found := len(np.unique(groups))) < LEAST_QUESTIONS:
        raise ValueError(f"groups has {found} of them: a fit needs {LEAST_QUESTIONS} at least")
    if not (scores < -1e-9).any():
        raise ValueError("logprobs and baselines differ by the same for all labels: no T fits best")
    ends = np.log(TEMPERATURES)
    best = scipy.optimize.minimize_scalar(
        lambda log_temperature: _loss(scores, truth, float(np.exp(log_temperature))),
        bounds=ends,
        method="bounded",
        options={"xatol": 1e-8},
    ).x
    temperature = float(np.exp(best))
    at_end = bool(np.abs(ends - best).min() < 1e-4)
    stderr = None if at_end else _stderr(scores, truth, temperature, groups)
    return Fit(temperature, stderr, len(truth))


def _loss(scores: Floats, truth: Ints, temperature: float) -> float:
    return -float(picked(log_softmax(scores, temperature), truth).mean())


def _stderr(scores: Floats, truth: Ints, temperature: float, groups: npt.ArrayLike) -> float | None:
    """Standard error of T, see :func:`fit_temperature`; ``None`` without any curvature."""
    logs = log_softmax(scores, temperature)
    p = np.exp(logs)
    z = np.where(p > 0, scores, 0.0)  # 0 times -inf is 0 here
    mean = (p * z).sum(axis=-1)
    # Below LOWEST the loss is cut off and has no slope: such an attempt says nothing of T.
    sloped = picked(logs, truth) > LOWEST
    curvature = float(((p * z**2).sum(axis=-1) - mean**2)[sloped].sum())
    if not curvature > 0:
        return None
    slopes = np.where(sloped, mean - z[np.arange(len(truth)), truth], 0.0)
    sums = np.bincount(np.unique(groups, return_inverse=True)[1], weights=slopes)
    spread = np.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum())
    return float(temperature**2 * spread / curvature)
