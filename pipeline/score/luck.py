"""What to say where attempts share luck, so that a σ is another one than it seems."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.base.console import percent
from scoring import INFLATION_LEVEL, Inflation


def shared_luck(
    names: Sequence[str], found: Inflation, sigma: npt.ArrayLike, confidence: float
) -> list[str]:
    """A line where trials of some names vary as independent attempts hardly would; else none.

    `sigma` is that of each name's score, taking attempts as independent, and `confidence` that of
    the intervals of what was `found`.

    >>> found = Inflation(2.25, 1.6, 3.3, 1e-6)
    >>> shared_luck(["avg"], found, 0.01, 0.95)[0].partition(" times")[0]
    'avg varies 2.25'
    >>> shared_luck(["avg"], found._replace(p=0.02), 0.01, 0.95)
    []
    """
    value, low, high, p = (np.atleast_1d(of) for of in found)
    sure = np.flatnonzero(p * len(names) < INFLATION_LEVEL)
    if not sure.size:
        return []
    most = sure[np.argmin(p[sure])]
    was = float(np.atleast_1d(sigma)[most])
    others = [names[i] for i in sure if i != most]
    more = f"; so, too, {', '.join(others[:4])}{' …' * (len(others) > 4)}" if others else ""
    return [
        f"{names[most]} varies {value[most]:.2f} times ({percent(confidence)} interval"
        f" {low[most]:.2f} to {high[most]:.2f}) as much from trial to trial as it would if attempts"
        " were independent; they share luck, as with sampling.seeds=shared. σ is rather"
        f" {was * value[most] ** 0.5:.4f} than {was:.4f}{more}"
    ]
