"""Solved examples that stand in front of a question: `prompt.shots`.

The same ones, in the same order, for every question, but never the question itself: where it is
among them, the next example takes its place.
"""

import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import find_local
from bayes_at_n.pipeline.config.seeds import option_order
from bayes_at_n.pipeline.config.settings import DatasetConfig, RunConfig
from bayes_at_n.pipeline.prepare import questions
from bayes_at_n.pipeline.prepare.questions import Question
from bayes_at_n.pipeline.prepare.rows import SUFFIXES
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.prompts import fill, options
from bayes_at_n.verifiers import LETTERS

_SPARE = 2  # a question is at most two of them, the one of its id and the one of its text


class Example(NamedTuple):
    """A solved problem; the id is None where it is only a number."""

    id: str | None
    problem: str
    asked: str  # the problem in the template
    solved: str  # what stands in the place of an answer
    choices: tuple[str, ...]


def load(cfg: RunConfig) -> list[Example]:
    """The examples of different problems to take `prompt.shots` from, in order; [] without any.

    In the order of the file or split; with `prompt.shots_seed` in the order of SHA-256 of seed and
    row number. Raises UserError: it cannot be read, has too few, or an example lacks a field.
    """
    prompt = cfg.prompt
    if not prompt.shots:
        return []
    dataset, source, rows = questions.rows_of(_source(cfg))
    numbered: Iterable[tuple[int, Any]] = enumerate(rows, 1)
    if (seed := prompt.shots_seed) is not None:
        numbered = sorted(numbered, key=lambda row: runfolder.short_hash(f"{seed} {row[0]}"))
    found: dict[str, tuple[bool, Question]] = {}
    for number, (place, row) in numbered:
        called = dataset.fields.id
        named = called is not None and not str(row.get(called, number)).strip().isdecimal()
        known = replace(dataset, fields=replace(dataset.fields, id=called if named else None))
        solved = "{solution}" in prompt.solved
        question, _ = questions.question_of(known, row, number, f"{source}, {place}", solved)
        found.setdefault(normal(question.problem), (named, question))
        if len(found) == prompt.shots + _SPARE:
            break
    lettered = questions.with_letters(dataset, [q for _, q in found.values()], source)
    examples = [
        _example(cfg, named, question)
        for (named, _), question in zip(found.values(), lettered, strict=True)
    ]
    return _enough(cfg, examples, "different problems")


def _example(cfg: RunConfig, named: bool, question: Question) -> Example:
    """A question as an example; its options in an order of its own where they are shuffled."""
    order = option_order(cfg, question.id, len(question.choices))
    choices = tuple(question.choices[place] for place in order)
    gold = LETTERS[order.index(LETTERS.index(question.gold))] if choices else question.gold
    return Example(
        question.id if named else None,
        question.problem,
        fill(cfg.prompt.template, question.problem, choices=options(choices)),
        fill(cfg.prompt.solved, answer=gold, solution=question.solution),
        choices,
    )


def of(cfg: RunConfig, examples: list[Example], question: Question) -> list[Example]:
    """Those for a question. Raises UserError: too few are left without the question itself."""
    if not examples:
        return []
    same = normal(question.problem)
    others = [e for e in examples if e.id != question.id and normal(e.problem) != same]
    return _enough(cfg, others, f"examples that are not {question.id} itself")[: cfg.prompt.shots]


def normal(problem: str) -> str:
    """A problem's text without case, spaces and dollars, to tell whether two are the same.

    >>> normal("Find $x$ in\\n2x = 4.") == normal("find x in 2x=4.")
    True
    """
    text = unicodedata.normalize("NFKC", problem).casefold()
    return "".join(c for c in text if c != "$" and not c.isspace())


def _source(cfg: RunConfig) -> DatasetConfig:
    """Where the examples are: a file with the fields of the data set, or a split of it."""
    given, dataset = cfg.prompt.shots_from or "", cfg.dataset
    local = find_local(given)
    if local is not None and local.is_file():
        return replace(dataset, path=given, limit=None)
    if Path(given).suffix in SUFFIXES:
        raise UserError(f"prompt.shots_from={given}: no such file")
    own = find_local(dataset.path)
    if own is not None and own.is_file():
        raise UserError(
            f"prompt.shots_from={given}: no such file, and dataset.path={dataset.path} is a file,"
            " which has no splits"
        )
    return replace(dataset, split=given, limit=None)


def _enough(cfg: RunConfig, found: list[Example], what: str) -> list[Example]:
    if len(found) < cfg.prompt.shots:
        raise UserError(
            f"prompt.shots={cfg.prompt.shots}: prompt.shots_from={cfg.prompt.shots_from} has only"
            f" {len(found)} {what}; ask for fewer, or name another file or split"
        )
    return found
