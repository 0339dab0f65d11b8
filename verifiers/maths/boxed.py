r"""Find where an attempt says its answer: the last closed `\boxed{…}` of its end, or a label.

>>> extract(r"<think>\boxed{1}?</think>So \boxed{\frac{1}{2}}.", truncated=False)
Extraction(answer='\\frac{1}{2}', reason='boxed', how='')
>>> extract(r"<think>\boxed{1}?</think>I give up.", truncated=False)
Extraction(answer=None, reason='no_box', how='')
"""

import re
from collections import deque
from collections.abc import Mapping
from typing import Literal, NamedTuple

Reason = Literal["boxed", "no_box", "unclosed", "truncated", "timeout", "error"]


class Extraction(NamedTuple):
    """The text inside the final box, or None and the reason why there is none.

    Kinds of answers that need no box (`kinds`) say where they found theirs, or what is lacking.
    """

    answer: str | None
    reason: Reason
    how: str = ""


class _Box(NamedTuple):
    """Where the content of a closed box starts and ends, and where its command does."""

    start: int
    end: int
    head: int


# Every alternative matches in constant time or consumes what it looked at, so hostile text takes
# linear time. A doubled backslash before "boxed" is a JSON-escaped box.
_TOKEN = re.compile(
    r"\\\\?(?P<box>boxed|fbox)(?![A-Za-z])\s{0,20}"
    r"(?:(?P<open>\{)|(?P<bare>[-+]?[0-9][0-9.,/]{0,99}))?"
    r"|\\.|(?P<brace>[{}])",
    re.DOTALL,
)
Policy = Literal["auto", "last", "all", "or_math"]
_MATH = re.compile(
    r"\$\$([^$]{1,1000})\$\$|\$([^$]{1,1000})\$|\\\[(.{1,1000}?)\\\]|\\\((.{1,1000}?)\\\)",
    re.DOTALL,
)
_MATH_WITHIN = 4_000  # characters at the end: bounds the work on a text of dollar signs
_CHANNEL = "<|channel|>"
_WIDEST = 1_000  # characters before a box in which one around it begins; longer are not compared
_NOT_SPACE = re.compile(r"\S")
_HIDDEN = re.compile(r"\\[hv]?phantom\s{0,9}\{[^{}\\]{0,20}$")
_VALUE = re.compile(r"(?:[^0-9+\-*/^<>!\\]*[=:])?[\s$]*")  # what a box has before its own value,
_END = re.compile(r"[\s$.]*")  # and behind it
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,20}(?=\{)")
_MOST_BOXES = 64  # of a gold answer


def extract(
    text: str, *, truncated: bool, reasoning_end: str | None = "</think>", boxes: Policy = "last"
) -> Extraction:
    r"""Take the final answer from the text of one attempt.

    Only the part after the last `reasoning_end` counts; without it the whole text does, because
    some models do not think aloud, but Harmony channels without a final one hold no answer. Of its
    boxes (`\boxed{…}`, `\fbox{…}`, or a number as in `\boxed 5`) the one that opens last, among
    those that are closed and not blank, is the answer; if all are blank the answer is "". Escaped
    braces do not count. Nothing is ever guessed from numbers outside a box.

    Args:
        text: the completion, of any length; the time is linear in it.
        truncated: the attempt ran into its token limit. It has not answered, whatever it boxed.
        reasoning_end: what ends the reasoning: `</think>`, `<|channel|>final<|message|>` for
            Harmony, or None to take the whole text.
        boxes: "last"; "auto": as "last", for only with a gold answer there is more to it, see
            `kinds`; "all": the different boxes in their order with commas between them, for
            questions with several parts; "or_math": the last box or, without any, the last piece
            of mathematics between dollar signs or LaTeX brackets, for models that do not box.

    Returns the answer with surrounding white space removed and the reason "boxed"; or None with
    "truncated", "unclosed" (boxes were opened, none was closed) or "no_box".

    >>> extract(r"\boxed{2} and \boxed{3}, \boxed{3}.", truncated=False, boxes="all").answer
    '2, 3'
    >>> extract(r"\boxed{\{1, 2\}}", truncated=False).answer
    '\\{1, 2\\}'
    >>> extract(r"so \boxed{5", truncated=False).reason
    'unclosed'
    """
    if truncated:
        return Extraction(None, "truncated")
    start = final_part(text, reasoning_end)
    if start is None:
        return Extraction(None, "no_box")

    tail = max(text.rfind("\\boxed", start), text.rfind("\\fbox", start)) - 2 * _WIDEST
    for begin in (max(tail, start), start) if boxes in ("auto", "last") else (start,):
        closed, opened = _closed(text, begin)
        full = [box for box in closed if _NOT_SPACE.search(text, box.start, box.end)]
        if full:
            break
    if full:
        outer = _outer(full)
        chosen = (
            [b for b in sorted(full) if b.start not in outer] if boxes == "all" else [max(full)]
        )
        answers = dict.fromkeys(_content(text, box, outer) for box in chosen)
        return Extraction(", ".join(answers), "boxed")
    if closed:  # and all of it blank
        return Extraction("", "boxed")
    if boxes == "or_math" and not opened:
        pieces = _MATH.findall(text, max(start, len(text) - _MATH_WITHIN))
        if pieces and (math := max(pieces[-1], key=len).strip()):  # one of its groups is not empty
            return Extraction(math, "boxed")
    return Extraction(None, "unclosed" if opened else "no_box")


def final_part(text: str, reasoning_end: str | None) -> int | None:
    """Where the final part begins; None where Harmony channels hold none.

    >>> final_part("<think>4?</think>5", "</think>"), final_part("5", None)
    (17, 0)
    """
    end = text.rfind(reasoning_end) if reasoning_end else -1
    if reasoning_end and end >= 0:
        return end + len(reasoning_end)
    harmony = reasoning_end and reasoning_end.startswith(_CHANNEL) and _CHANNEL in text
    return None if harmony else 0


def _closed(text: str, start: int) -> tuple[list[_Box], bool]:
    """All closed boxes, and whether any was opened."""
    closed, opened = list[_Box](), False
    stack = list[tuple[int, int] | None]()  # content and command of an open box; any other brace
    for token in _TOKEN.finditer(text, start):
        if token["box"]:
            opened = opened or token["open"] is not None
            if token["open"]:
                hidden = _HIDDEN.search(text, max(0, token.start() - 40), token.start())
                stack.append(None if hidden else (token.end(), token.start()))
            elif token["bare"]:
                closed.append(_Box(*token.span("bare"), token.start()))
        elif token["brace"] == "{":
            stack.append(None)
        elif token["brace"] == "}" and stack and (box := stack.pop()):
            closed.append(_Box(box[0], token.start(), box[1]))
    return closed, opened


def _outer(boxes: list[_Box]) -> dict[int, _Box]:
    """The box around each that is in another, by the start of that; no depth is too deep."""
    outer, around = dict[int, _Box](), list[_Box]()
    for box in sorted(boxes):
        while around and around[-1].end < box.end:
            around.pop()
        if around:
            outer[box.start] = around[-1]
        around.append(box)
    return outer


def _content(text: str, box: _Box, outer: Mapping[int, _Box]) -> str:
    """What is in a box; of one in another the inner only if that is the value of the outer."""
    answer = inner = box
    while (around := outer.get(inner.start)) and box.start - around.start <= _WIDEST:
        value = _VALUE.fullmatch(text, around.start, inner.head)
        behind = inner.end + (text[inner.start - 1] == "{")
        if not (value and _END.fullmatch(text, behind, around.end)):
            answer = around
        inner = around
    content = _BOX.sub("", text[answer.start : answer.end]).strip()
    return content if text[answer.start - 1] == "{" else content.rstrip(".,/")


# What stands between two boxes of one answer, and the name of the latter's value.
_NAMED = r"([A-Za-z](?:_\{?[A-Za-z0-9]\}?)?\s*=\s*)"
_BETWEEN = re.compile(
    r"(?:[\s$,;.&]|\\[()\[\],;: ]|\\q?quad|\\text\s?\{\s*(?:and|or)\s*\}|and|or)*" rf"{_NAMED}?\$?"
)
_NAMED_LAST = re.compile(rf"{_NAMED}\$?$")
_APART = re.compile(r"[,;&\n]|and|or|quad")  # else two boxes may be a product, or digits


def unboxed(gold: str) -> str:
    r"""The boxed part of a gold answer that comes with its sentence, else the gold.

    Boxes with nothing but a comma, "and" or "or" between them are one answer.

    >>> unboxed(r"It is $\boxed{5}$."), unboxed(r"\boxed{1}? No: $x=\boxed{2}$, $y=\boxed{3}$")
    ('5', 'x=2, y=3')
    """
    if "boxed" not in gold and "fbox" not in gold:
        return gold
    boxes = together(gold, of_gold=True)
    if not boxes:
        return extract(gold, truncated=False, reasoning_end=None).answer or gold
    if len(boxes) == 1:
        return boxes[0][1]
    return ", ".join(dict.fromkeys(name + value for name, value in boxes))


def together(text: str, of_gold: bool = False) -> list[tuple[str, str]]:
    r"""The boxes at the end with next to nothing between them, in order: "x=" or "", and the value.

    Any other word ends them, and so does a full stop unless it is `of_gold`: what comes behind may
    take back what came before. At most 64 boxes.

    >>> together(r"Not \boxed{1}: it is \boxed{2} or $y = \boxed{3}$.")
    [('', '2'), ('y = ', '3')]
    """
    found: list[tuple[str, str]] = []
    last, boxes = len(text), [box for box in _closed(text, 0)[0] if text[box.start - 1] == "{"]
    outer = _outer(boxes)
    for box in sorted(boxes)[: -_MOST_BOXES - 1 : -1]:
        if box.end >= last or not _NOT_SPACE.search(text, box.start, box.end):
            continue
        if found:
            between = _BETWEEN.fullmatch(text, box.end + 1, last)
            joined = between and (of_gold or ("." not in between[0] and _APART.search(between[0])))
            if not joined:
                break
        name = _NAMED_LAST.search(text, max(0, box.head - 20), box.head)
        found.append((name[1] if name else "", _content(text, box, outer)))
        last = box.head
    return found[::-1]


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
_SHORTENED = re.compile(
    r"\b(?:St|Mt|Ft|Dr|Mrs?|Ms|Jr|Sr|Prof|Gen|Col|Lt|Sgt|Capt|Rev|Gov|Sen|vs|U\.S)$"
)
WITHDRAWN = re.compile(
    r"\b(?:wait|actually|correction|scratch that|on second thought|my mistake|instead)\b", re.I
)


class Claim(NamedTuple):
    """What follows a label: the rest of its sentence, and where that begins and ends.

    A sentence that is withdrawn behind it goes on to the end of that.
    """

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
    stops = (
        stop.start()
        for stop in _SENTENCE.finditer(text, begin, begin + _MOST)
        if not _SHORTENED.search(text, max(begin, stop.start() - 5), stop.start())
    )
    end = next(stops, min(len(text), begin + _MOST))
    if withdrawn := WITHDRAWN.search(text, end, end + _MOST):
        end = min(len(text), withdrawn.end() + _MOST)
    return Claim(text[begin:end].strip(), begin, end)
