"""Problems, prompts and responses of a run, in side files of about half a megabyte.

Responses are written by processes, a share of the run's parts each: what takes time is to read and
decode tables, and to write JSON. Texts stay as they are; the page finds what is in them.
"""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline.base import children, environment
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.report import attempts, tokens
from bayes_at_n.pipeline.store import parquet, rowkeys, runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.numerics.inputs import Ints
from bayes_at_n.verifiers import LETTERS

FILE_BYTES = 1 << 19
SHARE_BYTES = 32 << 20  # of parts, as they lie on the disk: a second of work, about
MOST_PROCESSES = 8  # each holds some 150 MB, and a disk is no faster for more
_COLUMNS = ("question_id", "trial", "text", "token_ids", "logprobs")
Mapped = Callable[..., Iterator[Any]]  # `map`, in this process or in others
# Of each attempt that was written its number and that of its file; what could not be read.
Written = tuple[list[tuple[int, int]], parquet.Damage]


@contextlib.contextmanager
def processes() -> Iterator[Mapped]:
    """A `map` that is shared by a process a core; of one item, the built-in.

    Raises UserError: one of the processes was killed.
    """
    context = multiprocessing.get_context("spawn")  # this process has threads
    with children.tamed():
        pool = ProcessPoolExecutor(min(environment.cores(), MOST_PROCESSES), mp_context=context)

        def mapped(function: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
            return map(function, items) if len(items) < 2 else pool.map(function, items)

        try:
            yield mapped
        except BrokenProcessPool:
            raise UserError(
                "a process that wrote side files of the report was killed, by hand or for want of"
                " memory; run the same command again"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def write_prompts(run: Run, question_ids: list[str], stem: Path) -> None:
    """Write problems and exact prompts with their surprisal, in order."""
    rows = {}
    by_id = {row["question_id"]: row for row in run.questions}
    for number, qid in enumerate(question_ids):
        row = by_id[qid]
        logprobs = np.array(row["prompt_logprobs"] or (), float)  # None becomes NaN
        prompt, ids = row["prompt"] or "", np.array(row["prompt_token_ids"] or (), np.int64)
        rows[number] = {
            "problem": row["problem"] or "",
            "prompt": prompt,
            **_tokens(prompt, ids, logprobs, _decoder(run.cfg)),
        }
    attempts.write(stem, "-p", {"rows": rows})


def write_responses(
    run: Run, ids: list[str], keys: Ints, stem: Path, trials: int | None, mapped: Mapped
) -> Ints:
    """Write the responses of a run, of the attempts with these keys among questions of these ids.

    `stem` is the path of the side files, without their number and ending; of each question only the
    first so many `trials` are written, None for all; `mapped` comes from :func:`processes`.

    Returns for each of the K attempts the number of its file, or -1. Raises OSError: the disk is
    full, or may not be written.
    """
    shares = _shares(run)
    write = partial(_write, run.cfg, (ids, keys), stem, trials, len(shares))
    files, damage = np.full(keys.size, -1), parquet.Damage()
    for written, unreadable in mapped(write, list(enumerate(shares))):
        places, numbers = np.array(written, np.int64).reshape(-1, 2).T
        new = files[places] < 0  # of an attempt that is there twice the first counts
        files[places[new]] = numbers[new]
        damage.lines |= unreadable.lines
    if damage.lines:
        warn(f"attempts: {damage}; run `generate` to make them again")
    return files


def _shares(run: Run) -> list[set[str]]:
    """Stems of the run's parts and journals, in reading order, of some megabytes each."""
    shares: list[set[str]] = []
    size = 0
    for path in shards.files(run.attempts):
        if not shares or size >= SHARE_BYTES:
            shares, size = [*shares, set()], 0
        shares[-1].add(shards.stem(path))
        with contextlib.suppress(OSError):  # sealed meanwhile, into a part of the same stem
            size += path.stat().st_size
    return shares


def _write(
    cfg: RunConfig,
    known: tuple[list[str], Ints],
    stem: Path,
    trials: int | None,
    step: int,
    share: tuple[int, set[str]],
) -> Written:
    """Write share k of `step` shares of a run; its files are numbered k, k + step, k + 2 step, …"""
    run, (number, stems) = Run(cfg), share
    asked = {row["question_id"]: row for row in run.questions}
    rows: dict[str, Any] = {}
    size, written, damage = 0, [], parquet.Damage()
    for attempt, key, text, token_ids, logprobs in _attempts(run, *known, stems, trials, damage):
        order = runfolder.as_shown(cfg, asked[key[0]], key[1]).get("order", ())
        rows["{}/{}".format(*divmod(int(known[1][attempt]), 1 << 32))] = {
            "order": " ".join(LETTERS[place] for place in order),
            "text": text,
            **_tokens(text, token_ids, logprobs, _decoder(cfg), cfg.prompt.prefix),
        }
        written.append((attempt, number))
        size += len(text) + 2 * len(token_ids)
        if size >= FILE_BYTES:
            attempts.write(stem, f"-{number}", {"rows": rows})
            rows, size, number = {}, 0, number + step
    if rows:
        attempts.write(stem, f"-{number}", {"rows": rows})
    return written, damage


def _attempts(
    run: Run,
    ids: list[str],
    keys: Ints,
    stems: set[str],
    trials: int | None,
    damage: parquet.Damage,
) -> Iterator[tuple[int, tuple[str, int], str, Any, Any]]:
    """Attempt, its key, text, tokens and log-probs, one at a time: token lists stay small."""
    asked = pa.array(ids, pa.string())
    for batch in shards.batches(
        run.attempts, ATTEMPTS, _COLUMNS, damage, only=lambda path: shards.stem(path) in stems
    ):
        places = rowkeys.rows_of(rowkeys.encode(batch, asked), keys)
        if trials is not None:
            places = np.where(batch["trial"].to_numpy() < trials, places, -1)
        for i in np.flatnonzero(places >= 0).tolist():
            token_ids, logprobs = (
                values.values.to_numpy(zero_copy_only=False) if values.is_valid else np.empty(0)
                for values in (batch["token_ids"][i], batch["logprobs"][i])
            )
            question, trial, text = (batch[name][i].as_py() for name in _COLUMNS[:3])
            yield int(places[i]), (question, trial), text or "", token_ids, logprobs


def _decoder(cfg: RunConfig) -> tokens.Decoder | None:
    model = models.tokenizer_source(cfg.model)
    return tokens.decoder(model.id, model.revision)


def _tokens(
    text: str, token_ids: Any, logprobs: Any, decoder: tokens.Decoder | None, prefix: str = ""
) -> dict[str, Any]:
    """Lengths of tokens in UTF-16, packed, and their surprisal; null and "" where not known.

    A `prefix` that the model was given stands as one token of unknown surprisal.
    """
    lengths, levels = None, tokens.UNKNOWN * bool(prefix) + tokens.levels(logprobs)
    if decoder is not None and len(token_ids) and len(logprobs) == len(token_ids):
        lengths = tokens.lengths(text.removeprefix(prefix), token_ids, decoder)
    if lengths is not None and prefix:
        lengths = np.insert(lengths, 0, tokens.utf16(prefix))
    return {"lengths": None if lengths is None else tokens.packed(lengths), "levels": levels}
