"""Problems, prompts and responses of a run, in side files of about half a megabyte."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.base.console import warn
from pipeline.report import attempts, maths, tokens
from pipeline.report.attempts import Keys
from pipeline.store import shards
from pipeline.store.columns import ATTEMPTS
from pipeline.store.runfolder import Run

FILE_BYTES = 1 << 19
BYTES_OF_A_LETTER = 16  # of an expression, as a tree; about: it only says when a file is full
_COLUMNS = ("question_id", "trial", "text", "token_ids", "logprobs")


@dataclass
class Page:
    """What one side file holds: texts by row, and the expressions in them, each once."""

    rows: dict[int, Any] = field(default_factory=dict)
    trees: list[Any] = field(default_factory=list)
    size: int = 0
    places: dict[tuple[str, bool], int] = field(default_factory=dict)

    def spans(self, text: str, expressions: Sequence[maths.Span]) -> list[int]:
        """[start, end, tree] of each expression that can be drawn, one after another, in UTF-16."""
        drawable: list[tuple[maths.Span, int]] = []
        for expression in expressions:
            key = (expression.source, expression.display)
            if key not in self.places:
                drawn = maths.tree(*key)
                self.places[key] = -1 if drawn is None else len(self.trees)
                if drawn is not None:
                    self.trees.append(drawn)
                    self.size += BYTES_OF_A_LETTER * len(expression.source)
            if self.places[key] >= 0:
                drawable.append((expression, self.places[key]))
        ends = tokens.utf16(text, [at for span, _ in drawable for at in (span.start, span.end)])
        return [
            number
            for i, (_, tree) in enumerate(drawable)
            for number in (*ends[2 * i : 2 * i + 2], tree)
        ]

    def value(self) -> dict[str, Any]:
        """As the page reads it."""
        return {"rows": self.rows, "trees": self.trees}


def prompts(run: Run, question_ids: list[str]) -> dict[str, Any]:
    """Problems with their mathematics and exact prompts with their surprisal, in order."""
    page = Page()
    decoder = tokens.tokenizer(run.cfg.model.id, run.cfg.model.revision)
    by_id = {row["question_id"]: row for row in run.questions}
    for number, qid in enumerate(question_ids):
        row = by_id[qid]
        logprobs = [float("nan") if p is None else p for p in row["prompt_logprobs"] or ()]
        problem, prompt = row["problem"] or "", row["prompt"] or ""
        page.rows[number] = {
            "problem": problem,
            "spans": page.spans(problem, list(maths.spans(problem))),
            "prompt": prompt,
            **_tokens(prompt, row["prompt_token_ids"] or (), logprobs, decoder),
        }
    return page.value()


def responses(
    run: Run, keys: Keys, answers: Sequence[str | None], stem: Path, trials: int | None
) -> list[int]:
    """Write the responses of a run.

    Args:
        run: the run folder.
        keys: its K attempts.
        answers: their K final answers, None without one.
        stem: the path of the side files, without their number and ending.
        trials: only the first so many of each question; None for all.

    Returns:
        For each of the K attempts the number of its file, or -1.

    Raises:
        OSError: the disk is full, or may not be written.
    """
    where, number = [-1] * keys.known.size, 0
    page, damage = Page(), shards.Damage()
    model = run.cfg.model
    decoder = tokens.tokenizer(model.id, model.revision)
    for at, row in _rows(run, keys, trials, damage):
        text = row["text"] or ""
        page.rows[at] = _response(page, text, answers[at], model.reasoning_end)
        page.rows[at] |= _tokens(text, row["token_ids"], row["logprobs"], decoder)
        page.size += 2 * len(text) + 4 * len(row["token_ids"])
        where[at] = number
        if page.size >= FILE_BYTES:
            attempts.write(stem, f"-{number}", page.value())
            page, number = Page(), number + 1
    if page.rows:
        attempts.write(stem, f"-{number}", page.value())
    if damage.lines:
        warn(f"attempts: {damage}; run `generate` to make them again")
    return where


def _rows(
    run: Run, keys: Keys, trials: int | None, damage: shards.Damage
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Attempts with their place among the keys, one at a time: token lists stay small."""
    for batch in shards.batches(run.attempts, ATTEMPTS, _COLUMNS, damage):
        places = keys.places(batch)
        if trials is not None:
            places = np.where(batch["trial"].to_numpy() < trials, places, -1)
        for i in np.flatnonzero(places >= 0).tolist():
            lists = {
                column: values.values.to_numpy(zero_copy_only=False)
                if (values := batch[column][i]).is_valid
                else np.empty(0)
                for column in ("token_ids", "logprobs")
            }
            yield int(places[i]), {"text": batch["text"][i].as_py(), **lists}


def _response(page: Page, text: str, answer: str | None, marker: str | None) -> dict[str, Any]:
    box = maths.answer_span(text, answer, marker)
    expressions = list(maths.spans(text, maths.final_part(text, marker)))
    if box is not None and not any(s.start < box[1] and s.end > box[0] for s in expressions):
        expressions.append(maths.Span(box[0], box[1], text[box[0] : box[1]], False))
        expressions.sort()
    return {
        "text": text,
        "spans": page.spans(text, expressions),
        "answer": None if box is None else tokens.utf16(text, box),
    }


def _tokens(text: str, token_ids: Any, logprobs: Any, decoder: Any) -> dict[str, Any]:
    """Lengths of tokens in UTF-16 and their surprisal; null and "" where not known."""
    ids = np.asarray(token_ids, np.int64).tolist()
    if len(logprobs) != len(ids) or not ids:
        return {"lengths": None, "levels": tokens.levels(logprobs) if len(logprobs) else ""}
    characters = None if decoder is None else tokens.lengths(text, ids, decoder)
    if characters is not None:
        ends = tokens.utf16(text, np.cumsum([0, *characters]).tolist())
        characters = np.diff(ends).tolist()
    return {"lengths": characters, "levels": tokens.levels(logprobs)}
