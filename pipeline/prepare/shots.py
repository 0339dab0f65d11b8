"""Solved examples in front of a question: `prompt.shots`.

The same ones, in the same order, for every question, so that engines share their cache, but never
the question itself: where it is among them, the next example takes its place. Ids that are numbers
say nothing across two lists, so there the text alone tells.
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
from bayes_at_n.pipeline.prepare.questions import Question, parse, with_letters
from bayes_at_n.pipeline.prepare.rows import SUFFIXES, open_rows
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.prompts import fill, options
from bayes_at_n.verifiers import LETTERS

_SPARE = 2  # a question is at most two of them, the one of its id and the one of its text


class Example(NamedTuple):
    """A solved problem; the id is None where it is only a number."""

    id: str | None
    problem: str
    prompt: str  # the problem in the template
    solved: str  # what stands in the place of an answer
    choices: tuple[str, ...]


def load(cfg: RunConfig) -> list[Example]:
    """Read the examples of different problems to take `prompt.shots` from, in order.

    In the order of the file or split; with `prompt.shots_seed` in the order of SHA-256 of seed and
    row number. Raises UserError: it cannot be read, has too few, or an example lacks a field.
    """
    prompt = cfg.prompt
    if not prompt.shots:
        return []
    dataset, source, rows = open_rows(_source(cfg))
    numbered: Iterable[tuple[int, Any]] = enumerate(rows, 1)
    if (seed := prompt.shots_seed) is not None:
        numbered = sorted(numbered, key=lambda row: runfolder.short_hash(f"{seed} {row[0]}"))
    by_problem: dict[str, tuple[bool, Question]] = {}
    for number, (place, row) in numbered:
        column = dataset.fields.id
        named = column is not None and not str(row.get(column, number)).strip().isdecimal()
        known = replace(dataset, fields=replace(dataset.fields, id=column if named else None))
        solved = "{solution}" in prompt.solved
        question, _ = parse(known, row, number, f"{source}, {place}", solved)
        by_problem.setdefault(normal(question.problem), (named, question))
        if len(by_problem) == prompt.shots + _SPARE:
            break
    lettered = with_letters(dataset, [question for _, question in by_problem.values()], source)
    examples = [
        _example(cfg, named, question)
        for (named, _), question in zip(by_problem.values(), lettered, strict=True)
    ]
    return _enough(cfg, examples, "different problems")


def examples_for(cfg: RunConfig, examples: list[Example], question: Question) -> list[Example]:
    """Return those of a question. Raises UserError: too few are left without the question."""
    if not examples:
        return []
    same = normal(question.problem)
    others = [e for e in examples if e.id != question.id and normal(e.problem) != same]
    return _enough(cfg, others, f"examples that are not {question.id} itself")[: cfg.prompt.shots]


def normal(problem: str) -> str:
    """Return a problem's text without case, spaces and dollars, to tell whether two are the same.

    >>> normal("Find $x$ in\\n2x = 4.") == normal("find x in 2x=4.")
    True
    """
    text = unicodedata.normalize("NFKC", problem).casefold()
    return "".join(c for c in text if c != "$" and not c.isspace())


def _example(cfg: RunConfig, named: bool, question: Question) -> Example:
    """Return a question as an example; if options are shuffled, its own are in their own order."""
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


def _source(cfg: RunConfig) -> DatasetConfig:
    """Return where the examples are: a file with the data set's fields, or a split of it."""
    requested, dataset = cfg.prompt.shots_from or "", cfg.dataset
    local, own = find_local(requested), find_local(dataset.path)
    if local is not None and local.is_file():
        return replace(dataset, path=requested, limit=None)
    in_file = own is not None and own.is_file()
    if in_file or Path(requested).suffix in SUFFIXES:
        why = f", and dataset.path={dataset.path} is a file, which has no splits" * in_file
        raise UserError(f"prompt.shots_from={requested}: no such file{why}")
    return replace(dataset, split=requested, limit=None)


def _enough(cfg: RunConfig, examples: list[Example], what: str) -> list[Example]:
    if len(examples) < cfg.prompt.shots:
        raise UserError(
            f"prompt.shots={cfg.prompt.shots}: prompt.shots_from={cfg.prompt.shots_from} has only"
            f" {len(examples)} {what}; ask for fewer, or name another file or split"
        )
    return examples
