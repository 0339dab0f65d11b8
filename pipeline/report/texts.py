"""Problems, prompts and responses of a run, in side files of about half a megabyte.

Each run's are written by a process of its own: reading tables and writing JSON takes most of the
time. Texts are not changed; the page parses them.
"""

import contextlib
import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import children, program
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.report import attempts, tokens
from bayes_at_n.pipeline.store import runfolder, shards, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.numerics.inputs import Ints
from bayes_at_n.verifiers import LETTERS

FILE_BYTES = 1 << 19
SMALL = 32 << 20  # bytes of attempts that are written before further processes have started
MOST_PROCESSES = 8  # each takes some 150 MB, and the disk limits the speed
_COLUMNS = ("question_id", "trial", "text", "token_ids", "logprobs")


class Job(NamedTuple):
    """The texts of a run that a process writes."""

    cfg: RunConfig
    ids: list[str]  # of the M questions compared, as in the run
    keys: Ints  # of `tables.encode`, K attempts
    stem: Path  # of the side files, without number and ending
    trials: int | None  # per question, that have texts; None: all; 0: no prompts either


def write_all(jobs: Sequence[Job]) -> Iterator[Ints]:
    """Write prompts and responses of runs in a process per core, or in this one if they are few.

    Yields per job the numbers of its K attempts' files, -1 for none. Raises OSError: the disk is
    full, or not writable. UserError: a process was killed.
    """
    context = multiprocessing.get_context("spawn")  # this process has threads
    workers = max(1, min(program.cores(), MOST_PROCESSES, len(jobs)))
    alone = workers == 1 or stored(Run(job.cfg) for job in jobs) < SMALL
    light = shards.without_pandas  # pandas takes a third of the start of a process
    with children.dying_with_parent(), ProcessPoolExecutor(workers, context, light) as pool:
        try:
            for files, damage in map(write, jobs) if alone else pool.map(write, jobs):
                if damage:
                    warn(f"attempts: {damage}; run `generate` to make them again")
                yield files
        except BrokenProcessPool:
            raise UserError(
                "report: a process that wrote side files was killed, perhaps for lack of memory;"
                " repeat the command"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def stored(runs: Iterable[Run]) -> int:
    """Return the bytes of the runs' attempts on disk."""
    size = 0
    for path in (path for run in runs for path in shards.files(run.attempts)):
        with contextlib.suppress(OSError):  # sealed meanwhile, as a part of another name
            size += path.stat().st_size
    return size


def write(job: Job) -> tuple[Ints, str]:
    """Write prompts and responses of one run.

    Returns the numbers of the K attempts' files, -1 for none, and what was unreadable.
    """
    files, damage = np.full(job.keys.size, -1), shards.Damage()
    if job.trials == 0:
        return files, ""
    run, model = Run(job.cfg), models.tokenizer_source(job.cfg.model)
    decoder = tokens.decoder(model.id, model.revision)
    by_id = {row["question_id"]: row for row in run.questions}
    _write_prompts(job, [by_id[qid] for qid in job.ids], decoder)
    rows, size, number, judged = dict[str, Any](), 0, 0, dict[tuple[str, int], list[str]]()
    if job.cfg.verifier.kind == "generate":
        from bayes_at_n.pipeline.verify import generated  # with all that samples

        judged = generated.written(run)
    for attempt, qid, trial, text, ids, logprobs in _responses(run, job, damage):
        order = runfolder.as_presented(job.cfg, by_id[qid], trial).get("order", ())
        rows[f"{job.keys[attempt] >> 32}/{trial}"] = {
            "order": " ".join(LETTERS[place] for place in order),
            "text": text,
            "judged": (written := judged.get((qid, trial), [])),
            **of_tokens(decoder, text, ids, logprobs, job.cfg.prompt.prefix),
        }
        files[attempt] = number
        size += len(text) + 5 * len(ids) + sum(map(len, written))
        if size >= FILE_BYTES:
            attempts.write(job.stem, f"-{number}", {"rows": rows})
            rows, size, number = {}, 0, number + 1
    if rows:
        attempts.write(job.stem, f"-{number}", {"rows": rows})
    return files, str(damage)


def _write_prompts(job: Job, questions: list[Any], decoder: tokens.Decoder | None) -> None:
    """Write the questions' problems and exact prompts with their surprisal."""
    rows = {}
    for number, row in enumerate(questions):
        logprobs = np.array(row["prompt_logprobs"] or (), float)  # None becomes NaN
        prompt, ids = row["prompt"] or "", np.array(row["prompt_token_ids"] or (), np.int64)
        known = of_tokens(decoder, prompt, ids, logprobs)
        of_row = {"problem": row["problem"] or "", "choices": row.get("choices")}
        rows[number] = of_row | {"prompt": prompt, **known}
    attempts.write(job.stem, "-p", {"rows": rows})


def _responses(
    run: Run, job: Job, damage: shards.Damage
) -> Iterator[tuple[int, str, int, str, Any, Any]]:
    """Yield number, question, trial, text, tokens and log-probs of attempts."""
    known, order = pa.array(job.ids, pa.string()), np.argsort(job.keys)
    for batch in shards.batches(run.attempts, ATTEMPTS, _COLUMNS, damage):
        rows = tables.rows_of(tables.encode(batch, known), job.keys, order)
        if job.trials is not None:
            rows[batch["trial"].to_numpy() >= job.trials] = -1
        for i in np.flatnonzero(rows >= 0).tolist():
            token_ids, logprobs = (
                values.values.to_numpy(zero_copy_only=False) if values.is_valid else np.empty(0)
                for values in (batch["token_ids"][i], batch["logprobs"][i])
            )
            question, trial, text = (batch[name][i].as_py() for name in _COLUMNS[:3])
            yield int(rows[i]), question, trial, text or "", token_ids, logprobs


def of_tokens(
    decoder: tokens.Decoder | None, text: str, ids: Any, logprobs: Any, prefix: str = ""
) -> dict[str, str | None]:
    """Return `lengths` of tokens in UTF-16 and their `bits`, in hundredths; None if unknown.

    A `prefix` of the response that was in the prompt becomes one token of unknown surprisal.
    """
    lengths = None
    if decoder is not None and len(ids) and len(logprobs) == len(ids):
        lengths = tokens.lengths(text.removeprefix(prefix), ids, decoder)
    if lengths is None:
        return {"lengths": None, "bits": None}
    bits = tokens.surprisal(logprobs)
    if prefix:
        lengths, bits = np.insert(lengths, 0, tokens.utf16(prefix)), np.insert(bits, 0, -1)
    return {"lengths": _joined(lengths), "bits": _joined(bits)}


def _joined(numbers: Ints) -> str:
    """Join integers with commas, which is much faster than JSON numbers."""
    if not numbers.size:  # no log-probs: Arrow would take 65 µs
        return ""
    texts = pa.array(numbers).cast(pa.string())
    return str(pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), ",")[0])
