"""The variables of rubrics: what conditions may ask of an attempt, and the data set's thresholds.

An attempt has nine base signals (docs/rubrics.md); thresholds are quantiles of them over the
attempts of a data set; variables are comparisons of the two. Nothing here depends on a rubric.

What is not known counts as infinitely many bits: an attempt without tokens, or with none of a
finite log-prob, shows no confidence and so is `low_conf`. Such values enter no quantile.

Source: arXiv 2510.04265, appendix D and Table 4.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bayes_at_n.pipeline.rubrics.conditions import compile_condition
from bayes_at_n.scoring.numerics.inputs import Bools, Floats

VERIFIER = ("A", "B", "C")
SIGNALS = (
    "has_box",
    "is_correct",
    "token_ratio",
    "repeated_pattern",
    "prompt_bpt",
    "completion_bpt",
    *VERIFIER,
)

THRESHOLDS = {
    "tau_high": ("completion_bpt", 0.40, None),
    "tau_low_wrong": ("completion_bpt", 0.60, "wrong"),
    "tau_prompt": ("prompt_bpt", 0.90, None),
    "len_p33": ("token_ratio", 0.33, None),
    "len_p66": ("token_ratio", 0.66, None),
    "corr_p33": ("completion_bpt", 0.33, "correct"),
    "corr_p66": ("completion_bpt", 0.66, "correct"),
}
"""Per threshold its signal, the quantile, and the attempts it is of (None: all of them)."""

HIGH_A = 0.60
VARIABLES = {
    name: compile_condition(text, (), (*SIGNALS, *THRESHOLDS))
    for name, text in {
        "invalid": "repeated_pattern >= 0.5 or C >= 0.5",
        "correct": "is_correct >= 0.5",
        "wrong": "not is_correct >= 0.5",
        "high_conf": "completion_bpt <= tau_high",
        "low_conf": "not completion_bpt <= tau_high",
        "wrong_high_conf": "not is_correct >= 0.5 and completion_bpt <= tau_low_wrong",
        "ood": "prompt_bpt >= tau_prompt",
        "ind": "not prompt_bpt >= tau_prompt",
        "economical": "token_ratio <= len_p33",
        "moderate": "token_ratio > len_p33 and token_ratio <= len_p66",
        "verbose": "not token_ratio <= len_p66",
        "boxed": "has_box >= 0.5",
        "unboxed": "not has_box >= 0.5",
        "A_high": f"A >= {HIGH_A}",
    }.items()
}
"""Every variable as a condition on signals and thresholds; without a verifier C counts as 0."""


def needed(names: Iterable[str]) -> set[str]:
    """These names, and the signals and thresholds that those of them ask that are variables."""
    return {*names}.union(*(VARIABLES[name].names for name in names if name in VARIABLES))


def thresholds(
    runs: Sequence[Mapping[str, Any]], include_invalid: bool = True
) -> dict[str, float | None]:
    """Return the thresholds of a data set: quantiles of its attempts, by linear interpolation.

    `runs` holds arrays of shape (n,) by name; what a run lacks enters no quantile, and invalid
    attempts only with `include_invalid`. Returns per name of `THRESHOLDS` a number; None where no
    attempt of the kind has a value to rank.
    """
    pooled = {
        name: np.concatenate([of.get(name, np.full(len(of["is_correct"]), np.nan)) for of in runs])
        for name in runs[0]
    }
    arrays = _arrays(pooled)
    groups = _groups(arrays, ~_invalid(arrays) | include_invalid)
    limits = dict[str, float | None]()
    for name, (signal, quantile, group) in THRESHOLDS.items():
        values = arrays[signal][groups[group]] if signal in arrays else np.empty(0)
        values = values[np.isfinite(values)]
        limits[name] = float(np.quantile(values, quantile)) if values.size else None
    return limits


def variables(
    signals: Mapping[str, Any], limits: Mapping[str, float | None]
) -> dict[str, Floats | Bools | float]:
    """Return all that a condition may name: signals, arrays (n,), `limits`, and variables.

    A signal that is left out leaves out what needs it; without C `invalid` is repeated_pattern
    alone. So does a threshold that is None, unless no valid attempt here is of its kind.
    """
    known: dict[str, Any] = {**_arrays(signals)}
    invalid = _invalid(known)
    groups = _groups(known, ~invalid)
    for name, (signal, _, group) in THRESHOLDS.items():
        if (limit := limits.get(name)) is not None:
            known[name] = float(limit)
        elif signal in known and not groups[group].any():
            known[name] = np.nan  # nobody is compared with it but invalid attempts
    computed = {
        name: condition.evaluate(known)
        for name, condition in VARIABLES.items()
        if condition.names <= known.keys()
    }
    return known | computed | {"invalid": invalid}


def _invalid(signals: Mapping[str, Floats]) -> Bools:
    return VARIABLES["invalid"].evaluate({"C": 0.0, **signals})


def _groups(signals: Mapping[str, Floats], entering: Bools) -> dict[str | None, Bools]:
    """Which attempts each group of THRESHOLDS holds, of those that enter."""
    correct = VARIABLES["correct"].evaluate(signals)
    return {None: entering, "wrong": entering & ~correct, "correct": entering & correct}


def _arrays(signals: Mapping[str, Any]) -> dict[str, Floats]:
    arrays = {name: np.asarray(signals[name], np.float64) for name in SIGNALS if name in signals}
    for name in ("prompt_bpt", "completion_bpt"):
        if name in arrays:
            arrays[name] = np.where(np.isnan(arrays[name]), np.inf, arrays[name])
    return arrays
