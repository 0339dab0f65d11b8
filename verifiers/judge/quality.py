"""How good label probabilities are: proper scores, calibration error, separation, diagrams.

Every function takes probabilities ``prob`` (n, 3) of the labels A, B, C and the true ``labels`` 0,
1, 2 of shape (n,), n > 0. With p_iy the probability of label y for attempt i and t_i the truth:

    negative log-likelihood   -1/n sum_i log p_i,t_i                   (nats, 0 is best)
    Brier score               1/n sum_i sum_y (p_iy - [y = t_i])^2     (0 best, 2 worst)
    expected calibration      sum_b n_b/n |observed_b - predicted_b|   (top label, equal bins)
    AUROC                     P(p_A of a correct attempt > p_A of another) + 1/2 P(equal)

Log-likelihood and Brier score are proper: only the true probabilities minimize them. Calibration
error is not, and AUROC looks at order only, so a temperature hardly moves it. Read them together.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.verifiers.judge.calibration import (
    LABELS,
    LOWEST,
    TEMPERATURE,
    Bools,
    Ints,
    calibrate,
    direct,
    log_array,
)

BINS = 15  # as in Guo et al. 2017
Labels = Sequence[int] | Ints
Masked = np.ma.MaskedArray[Any, np.dtype[np.float64]]


class Reliability(NamedTuple):
    """A reliability diagram: bin b of B holds predictions above b / B and up to (b + 1) / B."""

    predicted: Masked  # mean prediction in each bin; an empty bin is masked
    observed: Masked  # share of hits in each bin, the same
    counts: npt.NDArray[np.int64]  # predictions in each bin


def nll(prob: npt.ArrayLike, labels: Labels) -> float:
    """Mean negative log-likelihood, in nats: at least 0, and 1.0986 for one third everywhere.

    A true label of probability 0 counts 708, so that the mean stays a number. Source: Good 1952,
    "Rational Decisions" (the logarithmic score).

    >>> round(nll([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], [0, 0]), 4)
    1.0397
    """
    own = np.asarray(prob)[np.arange(len(labels)), labels]
    return float(-np.log(np.clip(own, np.exp(LOWEST), 1.0)).mean())


def brier(prob: npt.ArrayLike, labels: Labels) -> float:
    """Brier score, from 0 to 2 (2/3 for one third everywhere); of two classes twice the usual one.

    Source: Brier 1950, "Verification of forecasts expressed in terms of probability".

    >>> brier([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]], [0, 0])
    1.1875
    """
    misses = np.subtract(prob, np.eye(len(LABELS))[labels])
    return float((misses**2).sum(axis=1).mean())


def reliability(prob: npt.ArrayLike, hit: npt.ArrayLike, bins: int = BINS) -> Reliability:
    """Predictions against what happened, in bins of equal width.

    `prob`, shape (n,), is the predicted probability of an event (n = 0 gives empty bins), and
    `hit`, bool, shape (n,), whether it happened. Source: Guo et al. 2017, arXiv 1706.04599, section
    2.

    >>> diagram = reliability([0.1, 0.2, 0.9, 1.0], [False, True, True, True], bins=2)
    >>> diagram.predicted.round(3).tolist(), diagram.observed.tolist(), diagram.counts.tolist()
    ([0.15, 0.95], [0.5, 1.0], [2, 2])
    """
    p = np.asarray(prob, dtype=np.float64)
    place = np.digitize(p, np.linspace(0.0, 1.0, bins + 1)[1:-1], right=True)
    count = np.bincount(place, minlength=bins)
    size = np.ma.MaskedArray(count, mask=count == 0)  # type: ignore[no-untyped-call]
    return Reliability(
        np.bincount(place, weights=p, minlength=bins) / size,
        np.bincount(place, weights=hit, minlength=bins) / size,
        count.astype(np.int64),
    )


def auroc(prob: npt.ArrayLike, labels: Labels) -> float | None:
    """How well P(A) tells correct attempts (label A) from all others, 0.5 for chance.

    Ties count one half; ``None`` if all attempts are correct, or none. Source: Hanley and McNeil
    1982, "The meaning and use of the area under a ROC curve".

    >>> auroc([[0.9, 0.1, 0.0], [0.4, 0.6, 0.0], [0.4, 0.0, 0.6]], [0, 0, 2])
    0.75
    """
    p, correct = np.asarray(prob)[:, 0], np.asarray(labels) == 0
    right = int(correct.sum())
    if right in (0, len(p)):
        return None
    _, place, counts = np.unique(p, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]  # mid-ranks
    above = float(ranks[correct].sum()) - right * (right + 1) / 2
    return above / (right * (len(p) - right))


def calibration_error(diagram: Reliability) -> float:
    """Expected calibration error of a diagram, 0 to 1: bins weighted by their counts.

    Few attempts in a bin bias it upwards: a perfectly calibrated verifier does not get 0. Source:
    Guo et al. 2017, arXiv 1706.04599, equation 3; Naeini et al. 2015.

    >>> round(calibration_error(reliability([0.8, 0.8, 0.8, 0.8, 0.6], [1, 1, 1, 0, 1])), 4)
    0.12
    """
    gap = np.ma.filled(np.abs(diagram.observed - diagram.predicted), 0.0)
    return float((gap * diagram.counts).sum() / diagram.counts.sum())


def report(
    logprobs: npt.ArrayLike,
    baselines: npt.ArrayLike,
    labels: Labels,
    temperature: float = TEMPERATURE,
) -> dict[str, Any]:
    """All measures before (softmax over the labels) and after calibration, ready for JSON.

    Label log-probs (n, 3), baselines and temperature are as for :func:`.calibration.calibrate`.
    Returns attempts, temperature, and under before and after: accuracy, nll, brier, ece, auroc (or
    None), and reliability: of P(A) against "is correct" (a) predicted, observed (None in empty
    bins), counts.

    >>> import numpy as np
    >>> table = report(np.log([[0.6, 0.3, 0.1], [0.8, 0.1, 0.1]]), np.log([0.8, 0.1, 0.1]), [1, 0])
    >>> table["before"]["accuracy"], table["after"]["accuracy"]
    (0.5, 1.0)
    """
    truth = np.asarray(labels)
    kinds = {"before": direct(logprobs), "after": calibrate(logprobs, baselines, temperature)}
    table: dict[str, Any] = {"attempts": len(truth), "temperature": float(temperature)}
    for kind, prob in kinds.items():
        hit = prob.argmax(axis=1) == truth
        top = reliability(prob.max(axis=1), hit)
        correct = reliability(prob[:, 0], truth == 0)
        table[kind] = {
            "accuracy": float(hit.mean()),
            "nll": nll(prob, truth),
            "brier": brier(prob, truth),
            "ece": calibration_error(top),
            "auroc": auroc(prob, truth),
            "reliability": {"a": {k: of.tolist() for k, of in correct._asdict().items()}},
        }
    return table


class Agreement(NamedTuple):
    """The grader's outcome against the verifier's label."""

    table: Ints  # attempts, (2, 3): rows correct and not correct by the grader, columns A, B, C
    observed: float  # share on which they agree
    expected: float  # share on which judges with these habits would agree by chance
    kappa: float | None  # Cohen's: 1 is full agreement; None where both know one word only


def agreement(correct: Bools, labels: Ints) -> Agreement:
    """Count grader against verifier, and compute Cohen's kappa of "correct" against "not".

    `correct`, shape (n,), n > 0, says whether the grader finds the attempt correct, and `labels`,
    likewise, the verifier's label, 0, 1, 2 for A, B, C. With the observed and expected share on
    which they agree, kappa = (observed - expected) / (1 - expected). Source: Cohen 1960, "A
    coefficient of agreement for nominal scales".

    >>> correct = np.array([True, True, True, False, False])
    >>> both = agreement(correct, np.array([0, 0, 1, 1, 2]))
    >>> both.table.tolist(), round(both.observed, 3), round(both.kappa, 3)
    ([[2, 1, 0], [0, 1, 1]], 0.8, 0.615)
    """
    cells = np.bincount(np.where(correct, 0, len(LABELS)) + labels, minlength=2 * len(LABELS))
    table = cells.reshape(2, len(LABELS)).astype(np.int64)
    counts = np.column_stack([table[:, 0], table[:, 1:].sum(axis=1)])
    p = counts / counts.sum()
    observed, expected = float(np.trace(p)), float(p.sum(axis=1) @ p.sum(axis=0))
    # Counts decide, not rounded shares: is every case in one and the same cell of the diagonal?
    constant = (np.diag(counts) == counts.sum()).any()
    kappa = None if constant else (observed - expected) / (1 - expected)
    return Agreement(table, observed, expected, kappa)


class Alpha(NamedTuple):
    """Agreement of several judges or votes beyond chance."""

    alpha: float  # 1: all agree; 0: as by chance; NaN: all votes are the same
    low: float  # ends of its interval over questions; NaN where it is not known
    high: float
    units: int  # attempts with two votes at least
    votes: int  # on these


def krippendorff(
    units: Sequence[Sequence[Any]], scale: str = "nominal", clusters: Sequence[Any] | None = None
) -> Alpha:
    """Compute Krippendorff's alpha of votes on attempts, with a 95 % interval.

    With d(x, y) = 1 for different votes (scale="nominal") or (x - y)^2 (scale="interval", for
    numbers), n_u votes on unit u, units with one vote left out, and n votes on the others::

        observed = 1/n sum_u sum_{i != j in u} d(v_i, v_j) / (n_u - 1)
        expected = sum_{i != j} d(v_i, v_j) / (n (n - 1))     over all pairs of votes
        alpha    = 1 - observed / expected

    Attempts at one question are alike, so the interval is a percentile bootstrap over clusters, of
    2,000 draws from one seed.

    Args:
        units: votes on each attempt, of any number of judges.
        scale: of the votes.
        clusters: the question of each unit; None: units are independent.

    Source: Krippendorff 2011, "Computing Krippendorff's alpha-reliability".

    >>> found = krippendorff([["a", "a"], ["a", "b"], ["b", "b"], ["b", "b", "b"]])
    >>> round(found.alpha, 4), found.units, found.votes
    (0.5556, 4, 9)
    >>> round(krippendorff([[1, 2], [3, 3], [7, 6]], "interval").alpha, 4)
    0.939
    """
    kept = [i for i, votes in enumerate(units) if len(votes) > 1]
    if not kept:
        return Alpha(np.nan, np.nan, np.nan, 0, 0)
    values = sorted({vote for i in kept for vote in units[i]}, key=lambda v: (str(type(v)), v))
    place = {value: k for k, value in enumerate(values)}
    counts = np.array(
        [np.bincount([place[v] for v in units[i]], minlength=len(values)) for i in kept]
    )
    if scale == "interval":
        numbers = np.array(values, np.float64)
        apart = (numbers[:, None] - numbers) ** 2
    else:
        apart = 1.0 - np.eye(len(values))
    size = counts.sum(axis=1)
    within = ((counts @ apart) * counts).sum(axis=1) / (size - 1)
    labels = [kept.index(i) if clusters is None else clusters[i] for i in kept]
    of = np.unique(np.array([str(label) for label in labels]), return_inverse=True)[1]
    groups = int(of.max()) + 1
    sums = np.zeros((groups, len(values) + 1))
    np.add.at(sums, of, np.column_stack([counts, within]))

    def alpha(total: Any) -> Any:
        votes, disagreement = total[..., :-1], total[..., -1]
        n = votes.sum(axis=-1)
        expected = ((votes @ apart) * votes).sum(axis=-1) / (n - 1)
        return 1 - np.divide(
            disagreement, expected, out=np.full(n.shape, np.nan), where=expected > 0
        )

    whole = float(alpha(sums.sum(axis=0)))
    drawn = np.random.default_rng(0).multinomial(groups, np.full(groups, 1 / groups), 2000)
    several = alpha(drawn @ sums)
    known = groups > 1 and np.isfinite(several).any()
    low, high = np.nanquantile(several, [0.025, 0.975]) if known else (np.nan, np.nan)
    return Alpha(whole, float(low), float(high), len(kept), int(size.sum()))


_WHY_FLAT = {
    "direct": "the verifier does not answer the question that it is asked",
    "calibrated": "it answers as it does without a response, so does the prompt hold the response?",
}
MASS_SHARE = 0.1  # of attempts may have a low label mass: a few are gibberish
FLAT = 0.05  # a distribution is flat if no probability is further than this from 1/3
# One label for all is a problem with so many correct attempts and so many others: a verifier that
# finds one in two of the rarer kind misses 10 of 10 once in a thousand times.
LEAST = 10


def check_verdicts(
    logprobs: npt.ArrayLike,
    baselines: npt.ArrayLike | None = None,
    correct: npt.ArrayLike | None = None,
    *,
    temperature: float = TEMPERATURE,
    mass_floor: float = 0.5,
) -> list[str]:
    """What shows that a verifier is broken, not merely bad: a sentence for each problem.

    ``logprobs`` are under the full vocabulary, shape (n, 3); without attempts there is no problem.
    ``baselines`` and ``temperature`` are as for :func:`calibrate`, and ``None`` leaves the
    calibrated ones unchecked; ``correct``, shape (n,), is the grader's view, and ``None`` leaves
    "one label for all" unchecked. A label mass P(A) + P(B) + P(C) below ``mass_floor`` is low.
    Raises ValueError: NaN, log-probs of more than probability 1.

    >>> import numpy as np
    >>> logprobs = np.log([[0.9, 0.05, 0.01]] * 40)
    >>> check_verdicts(logprobs)
    []
    >>> for problem in check_verdicts(logprobs, correct=[True] * 20 + [False] * 20): print(problem)
    every one of 40 attempts got the label A, though the grader finds 20 correct and 20 not
    """
    rows = log_array(logprobs, "logprobs")
    mass = np.exp(np.minimum(rows, 1.0)).sum(axis=1)
    if (mass > 1.01).any():  # bf16 and float32 may exceed 1 by a little
        raise ValueError(
            f"logprobs hold a label mass of {mass.max():.3g}: pass log-probs, not logits"
        )
    probabilities = {"direct": direct(rows)}
    if baselines is not None:
        probabilities["calibrated"] = calibrate(rows, baselines, temperature)
    if not len(rows):
        return []
    problems: list[str] = []
    low = float((mass < mass_floor).mean())
    if low > MASS_SHARE:
        problems.append(
            f"{low:.1%} of attempts have less than {mass_floor:g} of the probability on A, B and C "
            f"(median {np.median(mass):.2g}): prompt, chat template or label tokens do not fit "
            "this verifier"
        )
    for name, prob in probabilities.items():
        if np.abs(prob - 1 / 3).max() <= FLAT:
            problems.append(
                f"the {name} distribution of every attempt is flat (within {FLAT:g} of 1/3 each): "
                + _WHY_FLAT[name]
            )
    if correct is not None:
        labels = np.unique(prob.argmax(axis=1))  # calibrated ones where there are baselines
        right = int(np.count_nonzero(correct))
        wrong = len(rows) - right
        if len(labels) == 1 and min(right, wrong) >= LEAST:
            problems.append(
                f"every one of {len(rows)} attempts got the label {LABELS[labels[0]]}, though the"
                f" grader finds {right} correct and {wrong} not"
            )
    return problems
