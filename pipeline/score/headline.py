"""What to say of avg@N and Bayes@N side by side, and where a σ is another one than it seems."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import listed, percent
from bayes_at_n.scoring.metrics.bayes import SHRINKAGE_LIMIT


def ordered(headline: str) -> list[str]:
    """The two names, that of the headline first."""
    return sorted(("avg", "bayes"), key=lambda name: name != headline)


def apart(shrinkage: Mapping[str, float]) -> list[str]:
    """A line where the two differ by more than half a sigma of Bayes@N; nothing where none do.

    `shrinkage` by name is (Bayes@N - avg@N) / sigma, :func:`scoring.shrinkage`.
    """
    moved = {name: sigmas for name, sigmas in shrinkage.items() if abs(sigmas) > SHRINKAGE_LIMIT}
    if not moved:
        return []
    worst = max(moved, key=lambda name: abs(moved[name]))
    return [
        f"Bayes@N of {listed(moved, 5)} lies more than {SHRINKAGE_LIMIT:g} σ from avg"
        f" ({worst} {moved[worst]:+.2f}), drawn to the middle by its uniform prior: its interval"
        " covers less than it says; read avg and its interval"
    ]


def intervals(fitted: Mapping[str, bool]) -> str:
    """Which interval avg of each name has; `fitted` by name is :func:`scoring.fits`.

    >>> intervals({"a": True, "b": False}), intervals({"b": False})
    ("avg's by empirical Bayes over questions, but the plain one of b", "avg's the plain one")
    """
    plain = [name for name, fits in fitted.items() if not fits]
    if len(plain) == len(fitted):
        return "avg's the plain one"
    but = f", but the plain one of {listed(plain, 5)}" if plain else ""
    return f"avg's by empirical Bayes over questions{but}"


def shared_luck(
    names: Sequence[str], found: "scoring.Inflation", sigma: npt.ArrayLike, confidence: float
) -> list[str]:
    """A line where trials of some names vary as independent attempts hardly would; else none.

    `sigma` is that of each name's score, taking attempts as independent, and `confidence` that of
    the intervals of what was `found`.
    """
    value, low, high, p = (np.atleast_1d(of) for of in found)
    sure = np.flatnonzero(p * len(names) < scoring.INFLATION_LEVEL)
    if not sure.size:
        return []
    most = sure[np.argmin(p[sure])]
    was = float(np.atleast_1d(sigma)[most])
    others = [names[i] for i in sure if i != most]
    more = f"; so, too, {listed(others, 4)}" if others else ""
    return [
        f"{names[most]} varies {value[most]:.2f} times ({percent(confidence)} interval"
        f" {low[most]:.2f} to {high[most]:.2f}) as much from trial to trial as it would if attempts"
        " were independent; they share luck, as with sampling.seeds=shared (vLLM's runner V1). σ is"
        f" rather {was * value[most] ** 0.5:.4f} than {was:.4f}{more}"
    ]
