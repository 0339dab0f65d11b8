"""Colors of categories: the hue shows correct, wrong or invalid, the shade orders the rest.

Rubrics give their categories names such as `wrong_boxed_low_conf`. The hues are the same in every
figure and on every page; a darker shade means more confident, shorter, boxed, or in-distribution.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

Side = Literal["correct", "wrong", "invalid"]

HUES: dict[Side, str] = {"correct": "#00694f", "wrong": "#b03a00", "invalid": "#6b6f76"}
HATCHES: dict[Side, str] = {"correct": "", "wrong": "///", "invalid": "xx"}
PALEST = 0.4
_SIDES: dict[str, Side] = {"correct": "correct", "wrong": "wrong", "invalid": "invalid"}
_SIDES |= {"right": "correct", "incorrect": "wrong", "compliant": "wrong"}
_LETTERS: dict[str, Side] = {"A": "correct", "B": "wrong", "C": "invalid"}  # a verifier's labels
_LEVELS = {"high": 2, "mid": 1, "low": 0, "economical": 2, "moderate": 1, "boxed": 3, "ind": 1}
_LEVELS["not"] = -3


class Look(NamedTuple):
    """The hue of a category, and how dark it is, from 0 to 1."""

    side: Side
    shade: float


def looks(names: Sequence[str]) -> list[Look]:
    """Choose the look of each category by the words of its name.

    A name without such a word is invalid if it comes first, as in rubrics, correct if last.

    >>> looks(["invalid", "wrong_low_conf", "wrong_high_conf", "correct"])[1:3]
    [Look(side='wrong', shade=0.4), Look(side='wrong', shade=1.0)]
    >>> [look.side for look in looks(["bad", "fair", "good"])]
    ['invalid', 'wrong', 'correct']
    """
    words = [re.findall(r"[A-Za-z]+", name) for name in names]
    last = len(names) - 1
    kinds: list[Side] = [
        next(
            (side[word] for side in (_SIDES, _LETTERS) for word in parts if word in side),
            "invalid" if not i else "correct" if i == last else "wrong",
        )
        for i, parts in enumerate(words)
    ]
    levels = [sum(_LEVELS.get(word, 0) for word in parts) for parts in words]
    result = []
    for i, kind in enumerate(kinds):
        same = sorted((levels[k], k) for k, other in enumerate(kinds) if other == kind)
        share = same.index((levels[i], i)) / (len(same) - 1) if len(same) > 1 else 1.0
        result.append(Look(kind, round(PALEST + (1 - PALEST) * share, 2)))
    return result


def color(look: Look) -> str:
    """Return a look's color on white paper as `#rrggbb`.

    >>> color(Look("wrong", 1.0)), color(Look("wrong", 0.4))
    ('#b03a00', '#dfb099')
    """
    hue = HUES[look.side]
    parts = (int(hue[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - look.shade * (255 - part)):02x}" for part in parts)


def order(names: Sequence[str]) -> list[int]:
    """Return the order in which bars stack categories: correct from dark to pale, wrong, invalid.

    >>> order(["invalid", "wrong", "correct_low_conf", "correct_high_conf"])
    [3, 2, 1, 0]
    """
    styles, sides = looks(names), list(HUES)
    return sorted(range(len(names)), key=lambda i: (sides.index(styles[i].side), -styles[i].shade))
