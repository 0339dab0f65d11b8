"""What shows that a verifier is broken (its prompt, template or labels), and not merely bad."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from verifiers.judge._labels import (
    LABELS,
    Bools,
    Floats,
    bool_array,
    check_share,
    check_whole,
    log_rows,
)
from verifiers.judge.calibration import TEMPERATURE, calibrate, direct


def check_verdicts(
    logprobs: npt.ArrayLike,
    baselines: npt.ArrayLike | None = None,
    correct: npt.ArrayLike | None = None,
    *,
    temperature: float = TEMPERATURE,
    mass_floor: float = 0.5,
    mass_share: float = 0.1,
    flat: float = 0.05,
    least: int = 10,
) -> list[str]:
    """What shows that a verifier's labels are broken, not merely bad, in words.

    Args:
        logprobs: label log-probs under the full vocabulary, shape (n, 3); no attempts, no problem.
        baselines: as for :func:`calibrate`; ``None`` leaves the calibrated ones unchecked.
        correct: the grader's view, bool, shape (n,); ``None`` leaves "one label for all" unchecked.
        temperature: as for :func:`calibrate`.
        mass_floor: the label mass P(A) + P(B) + P(C) of an attempt is low below this. Under 0.5
            the verifier would sooner say something that is no label.
        mass_share: more than this share of attempts with a low mass is a problem. A few are to be
            expected, of responses that are gibberish.
        flat: distributions are flat if no probability of any attempt is further than this from 1/3.
        least: one label for all attempts is a problem only if the grader has at least so many
            correct attempts and so many that are not. A verifier that finds one in two of the
            rarer kind misses 10 of 10 once in a thousand times.

    Returns:
        A sentence for each problem; an empty list if there is none.

    Raises:
        ValueError: a wrong shape, NaN, log-probs of more than probability 1, a limit out of range.

    >>> import numpy as np
    >>> logprobs = np.log([[0.9, 0.05, 0.01]] * 40)
    >>> check_verdicts(logprobs)
    []
    >>> for problem in check_verdicts(logprobs, correct=[True] * 20 + [False] * 20): print(problem)
    every one of 40 attempts got the label A, though the grader finds 20 correct and 20 not
    """
    rows = log_rows(logprobs, "logprobs")
    check_share(mass_floor, "mass_floor")
    check_share(mass_share, "mass_share")
    check_share(flat, "flat")
    check_whole(least, "least", 1)
    mass = np.exp(np.minimum(rows, 1.0)).sum(axis=1)
    if (mass > 1.01).any():  # bf16 and float32 may exceed 1 by a little
        raise ValueError(
            f"logprobs hold a label mass of {mass.max():.3g}: pass log-probs, not logits"
        )
    named = {"direct": direct(rows)}
    if baselines is not None:
        named["calibrated"] = calibrate(rows, baselines, temperature)
    problems: list[str] = []
    if not len(rows):
        return problems
    low = float((mass < mass_floor).mean())
    if low > mass_share:
        problems.append(
            f"{low:.1%} of attempts have less than {mass_floor:g} of the probability on A, B and C "
            f"(median {np.median(mass):.2g}): prompt, chat template or label tokens do not fit "
            "this verifier"
        )
    for name, prob in named.items():
        if np.abs(prob - 1 / 3).max() <= flat:
            problems.append(
                f"the {name} distribution of every attempt is flat (within {flat:g} of 1/3 each): "
                + _WHY_FLAT[name]
            )
    if correct is not None:
        # prob is that of the last name: calibrated where there are baselines.
        problems += _one_label(prob, bool_array(correct, "correct", len(rows)), least)
    return problems


_WHY_FLAT = {
    "direct": "the verifier does not answer the question that it is asked",
    "calibrated": "it answers as it does without a response, so does the prompt hold the response?",
}


def _one_label(prob: Floats, correct: Bools, least: int) -> list[str]:
    """One label for everything, though the grader sees enough of both kinds."""
    said = np.unique(prob.argmax(axis=1))
    right, wrong = int(correct.sum()), int((~correct).sum())
    if len(said) > 1 or min(right, wrong) < least:
        return []
    return [
        f"every one of {len(correct)} attempts got the label {LABELS[said[0]]}, though the grader "
        f"finds {right} correct and {wrong} not"
    ]
