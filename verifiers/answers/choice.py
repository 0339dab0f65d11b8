r"""Multiple choice: which option the final part of a response names, and never a guess.

It may name it in the last box, after the last "answer:" or "answer is", or in a last line of its
own; by its letter, by its letter and text, or by its text alone. Whatever names another option in
the same place or later makes the answer two letters, which is nobody's.

>>> find("So **Answer:** (C)", ()), find(r"\boxed{\text{B) } 5}", ("4", "5")).answer
(Extraction(answer='C', reason='boxed', how='after a label'), 'B')
>>> find("It is 5.\n\\boxed{5}", ("4", "5"))
Extraction(answer='B', reason='boxed', how="in the last box, by the option's text")
>>> compare("B", find("Answer: A or B", ()).answer, Conventions())
('unparsable', 'several options are claimed')
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from bayes_at_n.verifiers import LETTERS
from bayes_at_n.verifiers.maths.boxed import WITHDRAWN, Extraction, extract, last_claim, together
from bayes_at_n.verifiers.maths.compare import compare as same_maths
from bayes_at_n.verifiers.maths.conventions import Conventions, Judged
from bayes_at_n.verifiers.maths.lexer import clean
from bayes_at_n.verifiers.maths.parser import read_number

LETTER = re.compile(r"[A-Z]")
_UNKNOWN = 10  # letters that count where the options are not known
_LONGEST = 1_000  # characters of a place that are looked at
_WRAPPED = re.compile(
    r"(?:^|\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathsf|boldsymbol|bm|bf|rm)\s*)\{([^{}]*)\}"
)
_BARE = re.compile(r"[*_`$\"'\\ \t{}\[\]().,:;!]+")
_NOUN = r"(?i:(?:the )?(?:correct |right |best )?(?:options?|choices?|letters?|answer)\b)"
_SO = r"(?:(?i:so|thus|hence|therefore),? )?"
_RIGHT = rf"\s+is (?:correct|right|{_NOUN})"
_LEAD = re.compile(
    rf"{_SO}(?:{_NOUN}(?: is)?:? )?"
    r"(?:\((?P<round>[A-Za-z])\)|\[(?P<square>[A-Z])\]|(?P<bare>[A-Z])(?=[).:\],;]|$|\s+[-–—]\s"
    rf"|\s+(?:because|since|as|which)\b|{_RIGHT})|(?P<alone>[a-z])(?=[).]?$))[).:\],;]*\s*"
)
_ALONE = re.compile(
    r"[*_`$\s]*(?:\([A-Za-z]\)|[A-Z]\)?"
    rf"|{_SO}(?:{_NOUN} )?\(?[A-Z]\)?{_RIGHT})[*_`$.\s]*"
)
_SEVERAL = re.compile(
    r"(?:both |either |neither )?\(?[A-Z]\)?(?:(?:,|/|&| and| or| nor)+ ?\(?[A-Z]\)?)+"
)
_OTHER = re.compile(r"\(([A-Z])\)|(?<![\w'’])(?:([B-HJ-Z])|(A)(?!\s+[a-z]))(?![\w'’])")
_BOTH = ", by its letter and text"
_MARKED = re.compile(r"\(([A-Z])\)")
_DENIED = re.compile(
    r"(?:is|was|are)?\s*(?:not|n't|incorrect|wrong|false|never)\b|isn['’]t\b", re.I
)


def find(text: str, choices: Sequence[str]) -> Extraction:
    """The letter of the option that a final part names, of `choices` in the order they were shown.

    Without them letters from A to J count, and no texts. The answer is several letters with commas
    where different ones are claimed, the claim itself where it names no option, None where there is
    no claim.
    """
    places = list(_places(text, tuple(choices)))
    if not places:
        return Extraction(None, "no_box", "it names no option")
    how, claim, end = places[0]
    letters, by = _named(claim, tuple(choices))
    if not letters:
        return Extraction(claim.strip()[:_LONGEST], "boxed", how)
    for _, later, at in places[1:]:
        if at > end:
            letters |= _named(later, tuple(choices))[0]
    if withdrawn := WITHDRAWN.search(text, end):
        tail = text[withdrawn.end() : withdrawn.end() + _LONGEST]
        letters |= {letter for letter in _MARKED.findall(tail) if letter in _shown(choices)}
    return Extraction(", ".join(sorted(letters)), "boxed", how + by)


def compare(gold: str, answer: str, conventions: Conventions) -> Judged:
    """Compare two letters; anything else is nobody's answer."""
    if not LETTER.fullmatch(gold):
        return "unparsable", "the gold answer is no letter of an option"
    if answer == gold:
        return "correct", "the same letter"
    if LETTER.fullmatch(answer):
        return "wrong", "another letter"
    several = re.fullmatch(r"[A-Z](?:, [A-Z])+", answer)
    return "unparsable", "several options are claimed" if several else "it names no option"


def lettered(asked: Sequence[tuple[str, Sequence[str]]], way: str | None = None) -> list[str]:
    """The letters of gold answers that are letters, indices or texts of their options.

    All of a dataset are read in one way: an index must not pass for the text of an option. `way`
    names it: letter, index or text. Where there are no options (the problem has them) they are
    letters up to J, or indices of those if `way` says so.

    Raises ValueError: there is no such way, or two that differ; the rest of a sentence.

    >>> lettered([("5", ["4", "5"]), ("7", ["7", "8"])]), lettered([("(b)", ()), ("C", ())])
    (['B', 'A'], ['B', 'C'])
    >>> lettered([("1", ["4", "5"]), ("0", ["0", "1"])])
    ['B', 'A']
    >>> lettered([("1", ["0", "1", "2"]), ("1", ["1", "2", "0"])])
    Traceback (most recent call last):
    ValueError: can be texts of options or indices from 0, such as '1'; give them as letters
    """
    most = _UNKNOWN if way == "index" else 0
    ways: dict[str, Callable[[str, Sequence[str]], int | None]] = {
        "texts of options": _place,
        "letters": lambda gold, of: _place(gold.strip(" ()").upper(), _shown(of)),
        "indices from 0": lambda gold, of: _place(gold, [str(i) for i in range(len(of) or most)]),
    }
    if way is not None:
        name = {"text": "texts of options", "letter": "letters", "index": "indices from 0"}[way]
        ways = {name: ways[name]}
    found = {name: [way(*one) for one in asked] for name, way in ways.items()}
    possible = [(name, found[name]) for name in ways if None not in found[name]]
    if not possible:
        name = max(found, key=lambda name: sum(place is not None for place in found[name]))
        bad = asked[found[name].index(None)][0]
        raise ValueError(f"are not all {' nor all '.join(ways)}: {bad[:60]!r} is none of {name}")
    (first, places), *others = possible
    for name, unlike in others:
        for (gold, _), one, other in zip(asked, places, unlike, strict=True):
            if one != other:
                raise ValueError(
                    f"can be {first} or {name}, such as {gold!r}; give them as letters"
                )
    return [LETTERS[place] for place in places if place is not None]


def _place(gold: str, options: Sequence[str]) -> int | None:
    """Where a gold answer is among options, if it is there; of two of one text the first."""
    return next((i for i, option in enumerate(options) if option == gold), None)


def _places(text: str, choices: tuple[str, ...]) -> Iterator[tuple[str, str, int]]:
    """Where an answer is claimed, the one that counts first: how, the claim, where it ends."""
    box = extract(text, truncated=False, reasoning_end=None).answer
    if box is not None:
        end = text.rfind(box) + len(box) if box else len(text)
        run = dict.fromkeys(value for _, value in together(text))  # boxes side by side are one
        claim = " or ".join(run) if len(run) > 1 else box
        yield "in the last box", claim[: _LONGEST + 1], end
    if label := last_claim(text):
        stop = text.find("\n", label.start)
        end = min(len(text) if stop < 0 else stop, label.start + _LONGEST)
        if box is None or "\\boxed" not in text[label.start : end]:
            yield "after a label", text[label.start : end], end
    line = text.rstrip()[-_LONGEST:].rpartition("\n")[2].strip()
    if line and len(line) < _LONGEST and (box is None or "\\boxed" not in line):
        alone = _ALONE.fullmatch(line)
        both = _named(line, choices)[1] == _BOTH
        if alone or (
            box is None and label is None and (both or _options(line.rstrip("."), choices))
        ):
            yield ("in the last line" if alone else "the last line"), line, len(text)


def _shown(choices: Sequence[str]) -> str:
    return LETTERS[: len(choices) or _UNKNOWN]


@lru_cache(1 << 16)
def _named(claim: str, choices: tuple[str, ...]) -> tuple[frozenset[str], str]:
    """The letters of the options that a short text claims, and what it says of how."""
    none: frozenset[str] = frozenset()
    if len(claim) > _LONGEST:
        return none, ""
    text = " ".join(_WRAPPED.sub(r"\1", claim.replace("$", "")).split()).strip("*_`\"' ")
    text = re.sub(r"\*\*|\\[()\[\],;: ]", "", text).strip().rstrip(".!")
    shown, own = _shown(choices), _options(text, choices)
    if _SEVERAL.fullmatch(text):
        return frozenset(LETTER.findall(text)) & frozenset(shown), ""
    lead = _LEAD.match(text)
    letter = next(filter(None, lead.groups()), "").upper() if lead else ""
    if lead is None or letter not in shown:
        return own, ", by the option's text" * bool(own)
    rest = text[lead.end() :]
    if _DENIED.match(rest):
        return none, ""
    if not rest:  # a letter that is the text of another option names both
        return own | {letter}, ""
    if letter in (same := _options(rest, choices)):
        return frozenset(letter), _BOTH
    if choices and not same:  # a number that is not its option's
        numbers = [read_number(clean(one)) for one in (choices[shown.index(letter)], rest)]
        if None not in numbers and numbers[0] != numbers[1]:
            return none, ""
    others = {next(filter(None, found)) for found in _OTHER.findall(rest)}
    return same | {letter} | (others & set(shown)), ""


def _options(text: str, choices: tuple[str, ...]) -> frozenset[str]:
    """The options whose text this is: letter by letter, else as words, else as mathematics."""

    def words(option: str) -> str:
        return _BARE.sub(" ", option.casefold()).strip()

    def maths(option: str) -> bool:
        return same_maths(option, text) is True

    for same in (text.__eq__, lambda option: words(option) == words(text) != "", maths):
        if found := frozenset(LETTERS[i] for i, option in enumerate(choices) if same(option)):
            return found
    return frozenset()
