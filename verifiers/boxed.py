r"""Find the final answer of an attempt: the last closed `\boxed{…}` of its final part.

>>> extract(r"<think>\boxed{1}?</think>So \boxed{\frac{1}{2}}.", truncated=False)
Extraction(answer='\\frac{1}{2}', reason='boxed')
>>> extract(r"<think>\boxed{1}?</think>I give up.", truncated=False)
Extraction(answer=None, reason='no_box')
"""

import re
from typing import Literal, NamedTuple

Reason = Literal["boxed", "no_box", "unclosed", "truncated"]


class Extraction(NamedTuple):
    """The text inside the final box, or None and the reason why there is none."""

    answer: str | None
    reason: Reason


# Every alternative matches in constant time or consumes what it looked at, so one pass over
# hostile text stays linear. A doubled backslash before "boxed" is a JSON-escaped box.
_TOKEN = re.compile(
    r"\\\\?(?P<box>boxed|fbox)(?![A-Za-z])\s{0,20}"
    r"(?:(?P<open>\{)|(?P<bare>[-+]?[0-9][0-9.,/]{0,99}))?"
    r"|\\.|(?P<brace>[{}])",
    re.DOTALL,
)
_NOT_SPACE = re.compile(r"\S")


def extract(text: str, *, truncated: bool, reasoning_end: str | None = "</think>") -> Extraction:
    r"""Take the final answer from the text of one attempt.

    Only the part after the last `reasoning_end` counts: `</think>`, or
    `<|channel|>final<|message|>` for Harmony. If the marker does not occur, the whole text is
    the final part, because some models do not think aloud. Of its boxes (`\boxed{…}`,
    `\fbox{…}`, or a number as in `\boxed 5`) the one that opens last, among those that are
    closed and not blank, is the answer; if all are blank the answer is "". Escaped braces do
    not count as braces. Nothing is ever guessed from numbers outside a box.

    Args:
        text: the completion, of any length; the time is linear in it.
        truncated: the attempt ran into its token limit. It has not answered, whatever it boxed.
        reasoning_end: the marker that ends the reasoning, or None to take the whole text.

    Returns:
        The answer with surrounding white space removed and the reason "boxed"; or None with
        "truncated", "unclosed" (boxes were opened, none was closed) or "no_box".

    >>> extract(r"\boxed{\{1, 2\}}", truncated=False).answer
    '\\{1, 2\\}'
    >>> extract(r"so \boxed{5", truncated=False).reason
    'unclosed'
    """
    if truncated:
        return Extraction(None, "truncated")
    start = 0
    if reasoning_end:
        found = text.rfind(reasoning_end)
        start = found + len(reasoning_end) if found >= 0 else 0

    best: tuple[int, int] | None = None  # where the content of the answer starts and ends
    blank = opened = False
    stack: list[int] = []  # content start of an open box, or -1 for any other open brace
    for token in _TOKEN.finditer(text, start):
        if token["box"]:
            opened = opened or token["open"] is not None
            if token["open"]:
                stack.append(token.end())
            elif token["bare"] and (best is None or token.start("bare") > best[0]):
                best = token.span("bare")
        elif token["brace"] == "{":
            stack.append(-1)
        elif token["brace"] == "}" and stack:
            content = stack.pop()
            if content < 0:
                continue
            if _NOT_SPACE.search(text, content, token.start()) is None:
                blank = True
            elif best is None or content > best[0]:
                best = (content, token.start())

    if best is not None:
        answer = text[best[0] : best[1]].strip()
        bare = text[best[0] - 1] != "{"
        return Extraction(answer.rstrip(".,/") if bare else answer, "boxed")
    if blank:
        return Extraction("", "boxed")
    return Extraction(None, "unclosed" if opened else "no_box")
