"""What to say where avg@N and Bayes@N stand side by side."""

from collections.abc import Mapping

from pipeline.base.console import listed
from scoring import SHRINKAGE_LIMIT


def apart(shrinkage: Mapping[str, float]) -> list[str]:
    """A line where the two differ by more than half a sigma of Bayes@N; nothing where none do.

    `shrinkage` by name is (Bayes@N - avg@N) / sigma, :func:`scoring.shrinkage`.

    >>> apart({"a": -0.1, "b": -0.7})[0].partition(",")[0]
    'Bayes@N of b lies more than 0.5 σ from avg (b -0.70)'
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
