"""Solved examples before a question, and texts scored after it: both stand in `prompt.solved`.

With `prompt.shots` every question gets the same examples in the same order, so that engines share
their cache, but never itself as an example: the next one replaces it. Numeric ids mean nothing
across two datasets, so such questions are compared by text only. With `sampling.likelihood` the
options or the gold text are scored after the prompt.
"""

import functools
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import find_local
from bayes_at_n.pipeline.config.settings import RunConfig, option_order
from bayes_at_n.pipeline.prepare.questions import Question, chosen, parse, with_letters
from bayes_at_n.pipeline.prepare.rows import SUFFIXES, open_rows
from bayes_at_n.pipeline.store import provenance
from bayes_at_n.prompts import fill
from bayes_at_n.prompts import options as listed
from bayes_at_n.verifiers import LETTERS

Encoded = tuple[list[int], list[int]]  # a context, and the tokens that are scored after it
_SPARE = 2  # a question matches at most two examples, one by id and one by text


class Option(NamedTuple):
    """A text to score after a prompt, and alone."""

    text: str
    after_prompt: Encoded
    alone: Encoded


def answer(cfg: RunConfig, choices: Sequence[str] | None, gold: str) -> str:
    """Return the right answer as it is scored: a letter if the prompt lists options, or a text."""
    if choices and "{choices}" not in cfg.prompt.template:
        return choices[LETTERS.index(gold)]
    return gold


def options(cfg: RunConfig, tokenizer: Any, row: Mapping[str, Any]) -> list[Option]:
    """Return what is scored of a row of the questions table.

    The options in their order, as letters or texts (see `answer`), or with likelihood=gold the gold
    answer alone. Each stands in `prompt.solved`, of which nothing after it is scored.
    """
    choices = row["choices"] or ()
    letters = LETTERS[: len(choices)]
    texts = [answer(cfg, choices, letter) for letter in letters]
    if cfg.sampling.likelihood == "gold":
        texts = [answer(cfg, choices, row["gold"])]
    prompt, front, bos = row["prompt"], list[int](), tokenizer.bos_token
    if cfg.prompt.kind == "plain" and bos and prompt.startswith(bos):  # the tokenizer's own
        prompt, front = prompt.removeprefix(bos), [tokenizer.bos_token_id]
    found, before = list[Option](), cfg.prompt.solved.partition("{answer}")[0]
    for text in texts:
        context, tokens = encoded(tokenizer, prompt, before + text)
        alone = encoded(tokenizer, "", before + text)
        found.append(Option(text, (front + context, tokens), alone))
    return found


def encoded(tokenizer: Any, context: str, text: str) -> Encoded:
    r"""Encode a text after its context, with the border where lm-evaluation-harness has it.

    White space at the end of the context counts as the beginning of the text. Context and text are
    encoded together; the text's tokens are those after as many as the context has by itself, even
    if a token spans the border. An empty context is the BOS token, or EOS. Source: `_encode_pair`
    in lm_eval/api/model.py, version 0.4.13. Raises UserError: it has neither.

    >>> import re
    >>> words = lambda text, add_special_tokens: {"input_ids": re.findall(r" ?\w+|\W", text)}
    >>> encoded(words, "Answer: ", "Paris"), encoded(words, "Answer:\nPar", "is")
    ((['Answer', ':'], [' Paris']), (['Answer', ':', '\n', 'Par'], []))
    """

    before = _ids(tokenizer, context.rstrip())
    whole = list(tokenizer(context + text, add_special_tokens=False)["input_ids"])
    if before:
        return [*before], whole[len(before) :]
    start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    if start is None:
        raise UserError("sampling.likelihood: the tokenizer has neither BOS nor EOS token")
    return [start], whole[whole[:1] == [start] :]


@functools.lru_cache(maxsize=2)  # all options of a question have the same two contexts
def _ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def most_tokens(cfg: RunConfig, tokenizer: Any, context: int | None, row: Mapping[str, Any]) -> int:
    """Return one token more than the longest option of a row has, as its `max_tokens`."""
    found = options(cfg, tokenizer, row)
    if empty := [option.text for option in found if not option.after_prompt[1]]:
        raise UserError(
            f"{row['question_id']}: the option {empty[0][:40]!r} has no token after its prompt; end"
            " prompt.template with a space or a line break, or begin prompt.solved with one"
        )
    most = 1 + max(len(option.after_prompt[1]) for option in found)
    if context is not None and len(found[0].after_prompt[0]) + most > context:
        raise UserError(
            f"{row['question_id']}: prompt and option have over {context} tokens, the context of"
            f" {cfg.model.name}; use fewer examples (prompt.shots), or leave the question out"
        )
    return most


def shown(options: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> str:
    """Write options with their log-probs, for people.

    >>> one = {"logprob": -1.25, "tokens": 2, "bytes": 5, "unconditional": -9.5}
    >>> shown([one], ["Paris"])
    'A) Paris: log-prob -1.2500 (2 tokens, 5 bytes; without the prompt -9.5000)'
    """
    return "\n".join(
        f"{letter}) {text}: log-prob {one['logprob']:.4f} ({one['tokens']} tokens, {one['bytes']}"
        f" bytes; without the prompt {one['unconditional']:.4f})"
        for letter, text, one in zip(LETTERS, texts, options, strict=False)
    )


class Example(NamedTuple):
    """A solved problem."""

    id: str | None  # None: only a number
    problem: str
    prompt: str  # the problem in the template
    solved: str  # the response
    choices: list[str]


def load_examples(cfg: RunConfig) -> list[Example]:
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
        text = fill(prompt.template, question.problem, choices=listed(choices, prompt.option))
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
