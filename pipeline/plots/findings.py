"""Titles of figures: what they show, in a line, computed from the values drawn."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bayes_at_n.pipeline.base.console import joined
from bayes_at_n.pipeline.display.style import one_line, plain

EMPTY = "No value is known"


def some(names: Iterable[str]) -> str:
    """List the first three names for a sentence, and count the rest."""
    return joined(map(one_line, names), 3)


def extreme(
    values: Mapping[str, float],
    what: str,
    form: str = "{:.3f}",
    least: bool = False,
    ends: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """State which name has the highest value (or the least), and which is next.

    Values that print alike share the lead; with `ends` of intervals, so do those whose intervals
    overlap that of the first.

    >>> extreme({"a": 0.5, "b": 0.25, "c": float("nan")}, "μ")
    'a has the highest μ, 0.500; next is b, 0.250'
    >>> extreme({"a": 0.5, "b": 0.4999}, "μ"), extreme({"a": 0.5}, "μ")
    ('a and b have the highest μ, 0.500', 'a: μ 0.500')
    >>> extreme({"a": 0.5, "b": 0.4}, "μ", ends={"a": (0.42, 0.58), "b": (0.3, 0.5)})
    'a and b have the highest μ, up to 0.500, within overlapping intervals'
    """
    finite = {name: value for name, value in values.items() if np.isfinite(value)}
    order = sorted(finite, key=lambda name: finite[name] if least else -finite[name])
    if not order:
        return EMPTY
    top, value = order[0], form.format(finite[order[0]])
    if len(finite) == 1:
        return f"{one_line(top)}: {what} {value}"
    first = tied = [name for name in order if form.format(finite[name]) == value]
    if ends:
        low, high = ends[top]
        overlap = [name for name in order if ends[name][1] >= low and ends[name][0] <= high]
        first = [name for name in order if name in {*tied, *overlap}]
    lead = (
        f"{some(first)} {'have' if first[1:] else 'has'} the {'low' if least else 'high'}est {what}"
    )
    if len(first) > len(tied):
        return f"{lead}, {'from' if least else 'up to'} {value}, within overlapping intervals"
    others = order[len(first) :]
    following = (
        f"; next is {one_line(others[0])}, {form.format(finite[others[0]])}" if others else ""
    )
    return f"{lead}, {value}{following}"


def most_often(firsts: Sequence[Sequence[str]], where: str) -> str:
    """State which name is first most often, given all names that share first place each time.

    >>> most_often(["a", "b", "a"], "under {} of {} rubrics")
    'a is first under 2 of 3 rubrics, b under 1'
    >>> most_often([["a", "b"], ["a", "b", "c"]], "under {} of {} rubrics")
    'a and b are each first under 2 of 2 rubrics, c under 1'
    """
    order = Counter(name for names in firsts for name in names).most_common()
    if not order:
        return EMPTY
    most = [name for name, count in order if count == order[0][1]]
    text = f"{joined(most)} {'are each' if most[1:] else 'is'} first"
    text += f" {where.format(order[0][1], len(firsts))}"
    others = order[len(most) : len(most) + 1]
    return text + "".join(f", {one_line(n)} {where.split()[0]} {k}" for n, k in others)


def last(values: npt.ArrayLike) -> float:
    """Return the last finite value; NaN if there is none.

    >>> last([0.5, 0.75, float("nan")])
    0.75
    """
    finite = plain(values)[np.isfinite(plain(values))]
    return float(finite[-1]) if finite.size else float("nan")
