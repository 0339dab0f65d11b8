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
from bayes_at_n.pipeline.config.settings import RunConfig, option_order
from bayes_at_n.pipeline.prepare.likelihood import answer
from bayes_at_n.pipeline.prepare.questions import Question, chosen, parse, with_letters
from bayes_at_n.pipeline.prepare.rows import SUFFIXES, open_rows
from bayes_at_n.pipeline.store import provenance
from bayes_at_n.prompts import fill, options
from bayes_at_n.verifiers import LETTERS

_SPARE = 2  # a question matches at most two examples, one by id and one by text


class Example(NamedTuple):
    """A solved problem."""

    id: str | None  # None: only a number
    problem: str
    prompt: str  # the problem in the template
    solved: str  # the response
    choices: list[str]


def load(cfg: RunConfig) -> list[Example]:
    """Read `prompt.shots` examples, and some spare ones, of different problems.

    They are in the order of the file or split; with `prompt.shots_seed`, in the order of SHA-256 of
    seed and row number. Raises UserError: the source cannot be read, has too few, or lacks a field.
    """
    prompt, requested = cfg.prompt, cfg.prompt.shots_from or ""
    if not prompt.shots:
        return []
    local, own = find_local(requested), find_local(cfg.dataset.path)
    dataset = replace(cfg.dataset, limit=None)
    if local is not None and local.is_file():  # with the same fields
        dataset.path = requested
    elif (in_file := own is not None and own.is_file()) or Path(requested).suffix in SUFFIXES:
        more = f", and dataset.path={dataset.path} is a file, which has no splits" * in_file
        raise UserError(f"prompt.shots_from={requested}: no such file{more}")
    else:
        dataset.split = requested
    dataset, source, rows = open_rows(dataset)
    numbered: Iterable[tuple[int, str, Any]] = chosen(dataset, source, rows)
    if (seed := prompt.shots_seed) is not None:
        numbered = sorted(numbered, key=lambda row: provenance.short_hash(f"{seed} {row[0]}"))
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
    examples = []
    for (named, _), question in zip(by_problem.values(), lettered, strict=True):
        choices, gold = ordered(cfg, question, prompt.shuffle != "none")
        text = fill(prompt.template, question.problem, choices=options(choices, prompt.option))
        right = answer(cfg, choices, gold)
        solution = fill(prompt.solved, answer=right, solution=question.solution)
        name = question.id if named else None
        examples.append(Example(name, question.problem, text, solution, choices))
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


def ordered(cfg: RunConfig, question: Question, shuffled: bool) -> tuple[list[str], str]:
    """Return a question's options, in the order of `prompt.shuffle` or the dataset, and its gold.

    That is the letter of the right one; without options, the answer.
    """
    if not shuffled or not question.choices:
        return [*question.choices], question.gold
    order = option_order(cfg, question.id, len(question.choices))
    gold = LETTERS[order.index(LETTERS.index(question.gold))]
    return [question.choices[option] for option in order], gold


def _enough(cfg: RunConfig, examples: list[Example], noun: str) -> list[Example]:
    if len(examples) < cfg.prompt.shots:
        raise UserError(
            f"prompt.shots={cfg.prompt.shots}: prompt.shots_from={cfg.prompt.shots_from} has only"
            f" {len(examples)} {noun}; set a smaller number, or another file or split"
        )
    return examples
