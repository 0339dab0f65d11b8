"""Problems, prompts and responses of a run, in side files of about half a megabyte."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.base.console import warn
from pipeline.prepare import models
from pipeline.report import attempts, maths, tokens
from pipeline.report.attempts import Keys
from pipeline.store import options, shards
from pipeline.store.columns import ATTEMPTS
from pipeline.store.runfolder import Run
from verifiers import LETTERS

FILE_BYTES = 1 << 19
BYTES_OF_A_LETTER = 16  # of an expression, as a tree; about: it only says when a file is full
_COLUMNS = ("question_id", "trial", "text", "token_ids", "logprobs")


@dataclass
class Page:
    """What one side file holds: texts by row, and the expressions in them, each once."""

    rows: dict[int, Any] = field(default_factory=dict)
    trees: list[Any] = field(default_factory=list)
    size: int = 0
    places: dict[tuple[str, bool], int | None] = field(default_factory=dict)

    def spans(self, text: str, expressions: Iterable[maths.Span]) -> list[tuple[int, int, int]]:
        """Start, end and tree of each expression that can be drawn, in UTF-16."""
        at = tokens.utf16(text)
        placed = [(span, self._place(span.source, span.display)) for span in expressions]
        return [(at[s.start], at[s.end], place) for s, place in placed if place is not None]

    def _place(self, source: str, display: bool) -> int | None:
        """Where the tree of an expression is, None where it cannot be drawn."""
        key = (source, display)
        if key not in self.places:
            tree = maths.tree(source, display)
            self.places[key] = None if tree is None else len(self.trees)
            if tree is not None:
                self.trees.append(tree)
                self.size += BYTES_OF_A_LETTER * len(source)
        return self.places[key]

    def write(self, stem: Path, ending: str) -> None:
        """Write the side file."""
        attempts.write(stem, ending, {"rows": self.rows, "trees": self.trees})


def write_prompts(run: Run, question_ids: list[str], stem: Path) -> None:
    """Write problems with their mathematics and exact prompts with their surprisal, in order."""
    page = Page()
    model = models.of_tokenizer(run.cfg.model)
    decoder = tokens.tokenizer(model.id, model.revision)
    by_id = {row["question_id"]: row for row in run.questions}
    for number, qid in enumerate(question_ids):
        row = by_id[qid]
        logprobs = np.array(row["prompt_logprobs"] or (), float)  # None becomes NaN
        problem, prompt = row["problem"] or "", row["prompt"] or ""
        page.rows[number] = {
            "problem": problem,
            "spans": page.spans(problem, maths.spans(problem)),
            "prompt": prompt,
            **_tokens(prompt, row["prompt_token_ids"] or (), logprobs, decoder),
        }
    page.write(stem, "-p")


def write_responses(
    run: Run, keys: Keys, answers: Sequence[str | None], stem: Path, trials: int | None
) -> list[int]:
    """Write the responses of a run.

    `answers` are the final ones of the K attempts, None without one, `stem` is the path of the side
    files, without their number and ending, and of each question only the first so many `trials` are
    written; None for all.

    Returns for each of the K attempts the number of its file, or -1. Raises OSError: the disk is
    full, or may not be written.
    """
    files, number = [-1] * keys.known.size, 0
    page, damage = Page(), shards.Damage()
    model = models.of_tokenizer(run.cfg.model)
    decoder = tokens.tokenizer(model.id, model.revision)
    by_id = {row["question_id"]: row for row in run.questions}
    for attempt, (qid, trial), text, token_ids, logprobs in _attempts(run, keys, trials, damage):
        shown = options.as_shown(run.cfg, by_id[qid], trial)
        answer = options.letter(shown, answers[attempt] or "") or None
        page.rows[attempt] = {
            "order": " ".join(LETTERS[place] for place in shown.get("order", ())),
            **_response(page, text, answer, model.reasoning_end),
            **_tokens(text, token_ids, logprobs, decoder, run.cfg.prompt.prefix),
        }
        page.size += 2 * len(text) + 4 * len(token_ids)
        files[attempt] = number
        if page.size >= FILE_BYTES:
            page.write(stem, f"-{number}")
            page, number = Page(), number + 1
    if page.rows:
        page.write(stem, f"-{number}")
    if damage.lines:
        warn(f"attempts: {damage}; run `generate` to make them again")
    return files


def _attempts(
    run: Run, keys: Keys, trials: int | None, damage: shards.Damage
) -> Iterator[tuple[int, tuple[str, int], str, Any, Any]]:
    """Attempt, its key, text, tokens and log-probs, one at a time: token lists stay small."""
    for batch in shards.batches(run.attempts, ATTEMPTS, _COLUMNS, damage):
        places = keys.places(batch)
        if trials is not None:
            places = np.where(batch["trial"].to_numpy() < trials, places, -1)
        for i in np.flatnonzero(places >= 0).tolist():
            token_ids, logprobs = (
                values.values.to_numpy(zero_copy_only=False) if values.is_valid else np.empty(0)
                for values in (batch["token_ids"][i], batch["logprobs"][i])
            )
            question, trial, text = (batch[name][i].as_py() for name in _COLUMNS[:3])
            yield int(places[i]), (question, trial), text or "", token_ids, logprobs


def _response(page: Page, text: str, answer: str | None, marker: str | None) -> dict[str, Any]:
    box = maths.answer_span(text, answer, marker)
    expressions = list(maths.spans(text, maths.final_part(text, marker)))
    if box is not None and not any(s.start < box[1] and s.end > box[0] for s in expressions):
        expressions.append(maths.Span(box[0], box[1], text[box[0] : box[1]], False))
        expressions.sort()
    at = tokens.utf16(text)
    return {
        "text": text,
        "spans": page.spans(text, expressions),
        "answer": None if box is None else [at[end] for end in box],
    }


def _tokens(
    text: str, token_ids: Any, logprobs: Any, decoder: Any, prefix: str = ""
) -> dict[str, Any]:
    """Lengths of tokens in UTF-16 and their surprisal; null and "" where not known.

    A `prefix` that the model was given stands as one token of unknown surprisal.
    """
    ids, characters = np.asarray(token_ids, np.int64).tolist(), None
    levels = tokens.UNKNOWN * bool(prefix) + tokens.levels(logprobs)
    if decoder is not None and ids and len(logprobs) == len(ids):
        characters = tokens.lengths(text.removeprefix(prefix), ids, decoder)
    if characters is not None and prefix:
        characters = [len(prefix), *characters]
    if characters is None:
        return {"lengths": None, "levels": levels}
    at = tokens.utf16(text)
    ends = [at[end] for end in itertools.accumulate(characters, initial=0)]
    return {"lengths": [end - start for start, end in itertools.pairwise(ends)], "levels": levels}
