r"""Read several boxes as one answer where the gold answer has several parts.

>>> text = r"I first found \boxed{7}. The roots are $\boxed{2}$ and $\boxed{3}$."
>>> find(text, "2, 3").answer, find(text, "3").answer
('2, 3', '3')
"""

import functools

from bayes_at_n.verifiers.maths.boxed import Extraction, extract, together, unboxed
from bayes_at_n.verifiers.maths.lexer import MAX_CHARS, clean
from bayes_at_n.verifiers.maths.parser import read_number
from bayes_at_n.verifiers.maths.structure import read_list


def find(text: str, gold: str) -> Extraction:
    r"""The answer in the final part of an attempt: its last box, or the boxes that close it.

    The boxes that end the text with nothing but a comma, a new line, "and" or "or" between them are
    one answer if the gold answer is a bare list or a set, all of them have together as many parts
    as it has, and the last box by itself has not. All of them: who lists candidates gains nothing.

    >>> find(r"\boxed{2}, \boxed{3}, \boxed{4}", "3, 4").answer
    '4'
    >>> find(r"\boxed{1} and \boxed{2}. No: \boxed{3} and \boxed{4}", "1, 2").answer
    '3, 4'
    """
    last = extract(text, truncated=False, reasoning_end=None)
    wanted = _count(unboxed(gold))
    if last.answer is None or wanted < 2 or _count(last.answer) == wanted:
        return last
    boxes = together(text)
    if len(boxes) < 2 or sum(_count(value) for _, value in boxes) != wanted:
        return last
    named = "=" in gold  # else the names of the values are no part of the answer
    return Extraction(", ".join(name * named + value for name, value in boxes), "boxed")


@functools.lru_cache(maxsize=4096)
def _count(text: str) -> int:
    """How many parts a bare list or a set has; a plus-minus is two. All else is one."""
    text = clean(text) if len(text) <= MAX_CHARS else ""
    kind, items = read_list(text)
    return len(items) if kind in ("", "{}") and not read_number(text) else 1
