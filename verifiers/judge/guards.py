"""What shows that a verifier is broken: its prompt, its chat template or its labels."""

import numpy as np
import numpy.typing as npt

from bayes_at_n.verifiers.judge.calibration import TEMPERATURE, calibrate, direct
from bayes_at_n.verifiers.judge.labels import LABELS, log_array

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
