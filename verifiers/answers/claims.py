"""Where a text says its answer without a box: after "answer:", "answer is", or GSM8K's "####"."""

import re
from collections import deque
from typing import NamedTuple

_MOST = 300  # characters of the line after a label that are looked at
_SAYS = r"\b[*_` ]{0,8}(?:[:：=]|[-–—](?= )|(?:is|(?:should|must|would) be)\b:?)"
_LABEL = re.compile(
    r"####(?=\s{0,4}[-+]?[$€£]?[-+]?[0-9.])"
    r"|(?<!this )(?<!that )(?<!your )\banswer(?: choice| to (?:this|the) (?:question|problem))?"
    rf"{_SAYS[:-1]}|(?=\n))"
    rf"|\b(?:correct|right|best)\s(?:option|choice|letter){_SAYS}",
    re.IGNORECASE,
)
_GAP = re.compile(
    r"[\s*_`:：=]{0,20}(?:(?:therefore|thus|hence|indeed|clearly|simply|is)\b[\s,:*]{0,8})?"
)
_SENTENCE = re.compile(r"\n|[.;!?](?=\s)")


class Claim(NamedTuple):
    """What follows a label: the rest of its sentence, and where that begins and ends."""

    text: str
    start: int
    end: int


def last_claim(text: str, start: int = 0) -> Claim | None:
    """What follows the last label of a text, if there is one; the time is linear.

    >>> last_claim("The answer is 3, no: 4.\\n**Answer:** (C), because it is 5.").text
    '(C), because it is 5.'
    """
    labels = deque(_LABEL.finditer(text, start), maxlen=1)
    if not labels:
        return None
    [label] = labels
    gap = _GAP.match(text, label.end())
    begin = gap.end() if gap else label.end()
    stop = _SENTENCE.search(text, begin, begin + _MOST)
    end = stop.start() if stop else min(len(text), begin + _MOST)
    return Claim(text[begin:end].strip(), begin, end)
