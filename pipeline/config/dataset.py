"""The settings of a dataset, and `dataset.where`, the filter of its rows.

A filter compares columns with literals; its terms are joined by `and`.
"""

import contextlib
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.checks import (
    MISSING,
    Amount,
    FolderName,
    Named,
    Positive,
    must,
    one_of,
)
from bayes_at_n.pipeline.config.sampling import AboutConfig, Day
from bayes_at_n.verifiers.answers import own
from bayes_at_n.verifiers.code.programs import NAMES as LANGUAGE_NAMES
from bayes_at_n.verifiers.maths.boxed import Policy
from bayes_at_n.verifiers.maths.conventions import Conventions

GOLD = ("auto", "any", "box", "index", "letter", "list", "literal", "text")
_reads = {name: one_of(*get_args(hint)) for name, hint in get_type_hints(Conventions).items()}


def _are_names(names: Any) -> bool:
    return all(isinstance(n, str) for n in (names if isinstance(names, list) else [names or ""]))


Names = Annotated[Any, must("a name, or a list of names", _are_names)]


@dataclass
class AboutDatasetConfig(AboutConfig):
    """Where the facts about a dataset come from, its size, and a row of its form."""

    questions: Positive | None = None  # number of questions; null: no source names it
    sample: dict[str, Any] = field(default_factory=dict)  # a made-up row with the same columns


@dataclass
class FieldNames:
    """The columns or JSON keys that hold the parts of a question.

    Texts may combine columns, as in `{passage}\\n\\n{question}`; `a.b` is the key b of column a.
    Hub datasets have the columns subset, split and row (number in its split) if not by other names.
    """

    id: str | None = "id"  # column of the id; null: row numbers
    problem: str = "problem"  # column of the text
    solution: str = "solution"  # column of the worked solution, for examples
    form: str | None = None  # column that says "strict" where the form must match, too
    cluster: str | None = None  # column that names what questions share, such as a passage
    answer: str = "answer"  # column of the gold answer; a choice's letter, index from 0, or text
    choices: Names = None  # columns of the options: one with a list, or several
    category: Names = None  # columns of subject, level, language: one, or a list of them
    date: str | None = None  # column of the date (or month, or year) when it was published


@dataclass
class ConventionsConfig:
    """Conventions for equal answers, see verifiers.Conventions."""

    lists: Annotated[str, _reads["lists"]] = "unordered"  # ordered: `1,2` is not `2,1`
    units: Annotated[str, _reads["units"]] = "optional"  # whether units must match
    decimals: Annotated[str, _reads["decimals"]] = "exact"  # rounded: 0.333 equals 1/3
    percent: Annotated[str, _reads["percent"]] = "hundredth"  # either: 2% may also mean 2
    tolerance: Amount = 0.0  # absolute tolerance, for answer=number
    relative: Amount = 0.0  # tolerance as a share of the gold answer; the larger counts
    text: Annotated[str, _reads["text"]] = "space"  # differences that answer=exact and regex ignore


@dataclass
class DatasetConfig:
    """Questions with gold answers: a file, or a Hugging Face dataset."""

    name: FolderName = MISSING  # name in tables and of the folder of its runs
    path: str = MISSING  # JSON, JSON Lines, CSV or Parquet file, or a hub id
    subset: Names = None  # configuration of a hub dataset, or a list of them
    split: Names = "test"  # split of a hub dataset, or a list of them
    revision: str | None = None  # commit, branch or tag on the hub
    fields: FieldNames = field(default_factory=FieldNames)
    where: str | None = None  # filter of rows: COLUMN == VALUE and ... (!= < <= > >= ~ !~)
    since: Day | None = None  # `score` compares questions before this date with later ones
    gold_after: Named | None = None  # the gold answer follows the last occurrence of this text
    # how the gold answer is read: box (the last one of a solution), list (all its items), any (one
    # of its items is enough; empty: "unanswerable"), literal (a list or value of Python or JSON);
    # of a choice letter, index (from 0) or text; auto: a text, or a choice in any of these forms
    gold: Annotated[str, one_of(*GOLD)] = "auto"
    limit: Positive | None = None  # use only this many of the first questions
    # kind of answer: a name in verifiers.KINDS, python:FILE.py:function, or judge (math, decided by
    # the verifier)
    answer: str = "math"
    # of programs (answer=code); others than Python are tested by input and output
    language: Annotated[str, one_of(*LANGUAGE_NAMES)] = "python"
    # boxes that are the answer; auto: the last, or the closing ones if the gold answer has parts
    boxes: Annotated[str, one_of(*get_args(Policy))] = "auto"
    pattern: str | None = None  # for answer=regex; its group is the answer
    conventions: ConventionsConfig = field(default_factory=ConventionsConfig)
    # answers that the verifier judges: all, or unmatched, those that the rules do not accept
    judge: Annotated[str, one_of("unmatched", "all")] | None = None
    about: AboutDatasetConfig = field(default_factory=AboutDatasetConfig)  # sources, size, a row

    def __post_init__(self) -> None:
        if self.answer == "judge":
            self.answer, self.judge = "math", self.judge or "all"

    def problems(self) -> Iterator[str]:
        try:
            parse_filter(self.where or "x == x")
        except ValueError as error:
            yield f"where={self.where}: {error}; write COLUMN == VALUE and COLUMN < VALUE"
        if (self.answer, self.pattern, self.conventions) != ("math", None, ConventionsConfig()):
            from bayes_at_n.verifiers.answers.kinds import problems  # a tenth of a second

            yield from problems(self.answer, self.pattern, Conventions(**asdict(self.conventions)))

    def grader(self) -> tuple[str, str | None]:
        """Return the kind of answer, with the resolved path and hash of a user's own grader."""
        if not self.answer.startswith("python:"):
            return self.answer, None
        try:
            return own.resolved(self.answer)
        except ValueError as error:
            raise UserError(f"dataset.answer={self.answer}: {error}") from error


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "~": operator.contains,
    "!~": lambda text, part: part not in text,
}
_TERM = re.compile(
    r"\s*(`[^`]+`|[^\s=!<>~`'\"]+)\s*([=!<>]=|!?~|<|>)\s*(\"[^\"]*\"|'[^']*'|[^\s=!<>~`'\"]+)\s*"
    r"(?:\band\s+(?=\S)|$)"
)


class Term(NamedTuple):
    """One comparison: of a column with a text."""

    column: str
    operator: str
    literal: str

    def accepts(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row satisfies it; a cell with a list does if one of its items does.

        Two numbers are compared as numbers, else texts without case, so dates in ISO form work; ~
        is "contains". An empty cell (None, NaN) is the text "". With != and !~ all items of a list
        must satisfy it.
        """
        cell = row[self.column]
        items = cell if isinstance(cell, list | tuple) else [cell]
        tests = (self._compare("" if item is None or item != item else item) for item in items)
        return all(tests) if self.operator[0] == "!" else any(tests)

    def _compare(self, item: Any) -> bool:
        sides: tuple[Any, Any] = str(item).casefold(), self.literal.casefold()
        if "~" not in self.operator:
            with contextlib.suppress(ValueError):
                sides = float(sides[0]), float(sides[1])
        return _OPERATORS[self.operator](*sides)


def parse_filter(text: str) -> list[Term]:
    """Return the comparisons of a filter, all of which must hold.

    A column whose name has spaces stands in backquotes, a text with spaces in quotes.

    >>> [tuple(term) for term in parse_filter("year == 2024 and `Answer type` != 'a proof'")]
    [('year', '==', '2024'), ('Answer type', '!=', 'a proof')]
    """
    terms, place = list[Term](), 0
    while place < len(text) or not terms:
        if not (found := _TERM.match(text, place)):
            raise ValueError(f"cannot be read from {text[place:].strip()[:40]!r} on")
        column, name, literal = found.groups()
        literal = literal[1:-1] if literal[0] in "\"'" else literal
        terms.append(Term(column.strip("`"), name, literal))
        place = found.end()
    return terms
