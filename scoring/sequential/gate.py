"""Several requirements decided together, each by e-values of data of its own."""

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.checks import check_positive, finite_array
from bayes_at_n.scoring.numerics.inputs import Bools


def claimed(log_e: npt.ArrayLike, level: float) -> Bools:
    """Choose which of D claims are made so that any is wrong with a chance of at most ``level``.

    ``log_e`` (D,) are natural logs of the largest e-value of each claim so far, of independent
    data. The k largest are claimed where the k-th is at least (D - k + 1) / level: all D where each
    reaches 1 / level, one by itself at D / level. That holds at all looks together (the proof is in
    docs/compare.md). Raises ValueError: numbers that are not finite, a level not in (0, 1]. Source:
    Hochberg, "A sharper Bonferroni procedure for multiple tests of significance", Biometrika 1988.

    >>> claimed(np.log([45, 41, 50, 44]), 0.025).tolist()
    [True, True, True, True]
    >>> claimed(np.log([45, 39, 170, 44]), 0.025).tolist()
    [False, False, True, False]
    """
    values = finite_array(log_e, "log_e")
    check_positive(level, "level", most=1.0)
    order = np.argsort(-values, kind="stable")
    needed = np.log(np.arange(values.size, 0, -1) / level)
    passed = np.flatnonzero(values[order] >= needed)
    found = np.zeros(values.size, bool)
    found[order[: passed[-1] + 1 if passed.size else 0]] = True
    return found
