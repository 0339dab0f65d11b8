"""Solved examples before a question: `prompt.shots`.

Every question gets the same examples in the same order, so that engines share their cache, but
never itself as an example: the next one replaces it. Numeric ids mean nothing across two datasets,
so such questions are compared by text only.
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
from bayes_at_n.pipeline.prepare.likelihood import answer
from bayes_at_n.pipeline.prepare.questions import Question, chosen, parse, with_letters
from bayes_at_n.pipeline.prepare.rows import SUFFIXES, open_rows
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.prompts import fill, options
from bayes_at_n.verifiers import LETTERS

_SPARE = 2  # a question matches at most two examples, one by id and one by text


class Example(NamedTuple):
    """A solved problem."""

    id: str | None  # None: only a number
    problem: str
    prompt: str  # the problem in the template
    solved: str  # the response
    choices: tuple[str, ...]


def load(cfg: RunConfig) -> list[Example]:
    """Read `prompt.shots` examples, and some spare ones, of different problems.

    They are in the order of the file or split; with `prompt.shots_seed`, in the order of SHA-256 of
    seed and row number. Raises UserError: the source cannot be read, has too few, or lacks a field.
    """
    prompt = cfg.prompt
    if not prompt.shots:
        return []
    dataset, source, rows = open_rows(_source(cfg))
    numbered: Iterable[tuple[int, str, Any]] = chosen(dataset, source, rows)
    if (seed := prompt.shots_seed) is not None:
        numbered = sorted(numbered, key=lambda row: runfolder.short_hash(f"{seed} {row[0]}"))
    by_problem: dict[str, tuple[bool, Question]] = {}
    for number, position, row in numbered:
        column = dataset.fields.id
        named = column is not None and not str(row.get(column, number)).strip().isdecimal()
        fields = replace(dataset.fields, id=column if named else None)
        solved = "{solution}" in prompt.solved
        row_dataset = replace(dataset, fields=fields)
        question, _ = parse(row_dataset, row, number, f"{source}, {position}", solved)
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
    """Return the examples of a question. Raises UserError: too few without the question itself."""
    if not examples:
        return []
    own = normal(question.problem)
    others = [e for e in examples if e.id != question.id and normal(e.problem) != own]
    return _enough(cfg, others, f"examples that are not {question.id} itself")[: cfg.prompt.shots]


def normal(problem: str) -> str:
    """Return a problem's text without case, spaces and dollars, for comparison.

    >>> normal("Find $x$ in\\n2x = 4.") == normal("find x in 2x=4.")
    True
    """
    text = unicodedata.normalize("NFKC", problem).casefold()
    return "".join(c for c in text if c != "$" and not c.isspace())


def _example(cfg: RunConfig, named: bool, question: Question) -> Example:
    """Return a question as an example, with its options shuffled if `prompt.shuffle` is set."""
    order = option_order(cfg, question.id, len(question.choices))
    choices = tuple(question.choices[option] for option in order)
    gold = LETTERS[order.index(LETTERS.index(question.gold))] if choices else question.gold
    return Example(
        question.id if named else None,
        question.problem,
        fill(cfg.prompt.template, question.problem, choices=options(choices, cfg.prompt.option)),
        fill(cfg.prompt.solved, answer=answer(cfg, choices, gold), solution=question.solution),
        choices,
    )


def _source(cfg: RunConfig) -> DatasetConfig:
    """Return the dataset of the examples: a file with the same fields, or a split."""
    requested, dataset = cfg.prompt.shots_from or "", cfg.dataset
    local, own = find_local(requested), find_local(dataset.path)
    if local is not None and local.is_file():
        return replace(dataset, path=requested, limit=None)
    in_file = own is not None and own.is_file()
    if in_file or Path(requested).suffix in SUFFIXES:
        more = f", and dataset.path={dataset.path} is a file, which has no splits" * in_file
        raise UserError(f"prompt.shots_from={requested}: no such file{more}")
    return replace(dataset, split=requested, limit=None)


def _enough(cfg: RunConfig, examples: list[Example], noun: str) -> list[Example]:
    if len(examples) < cfg.prompt.shots:
        raise UserError(
            f"prompt.shots={cfg.prompt.shots}: prompt.shots_from={cfg.prompt.shots_from} has only"
            f" {len(examples)} {noun}; set a smaller number, or another file or split"
        )
    return examples
