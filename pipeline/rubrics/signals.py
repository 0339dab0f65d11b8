"""signals: the nine base signals of every attempt, on which all rubrics rest.

Bits per token are -mean log2 p of the sampled tokens, and of the prompt without its first token,
which has no log-prob. Some models give infinite log-probs for a few tokens: those are left out of
the mean and counted. Where no finite log-prob is left the signal is null. Imported records have
means of log-probs in place of lists: those count where an attempt, or a prompt, has no list.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.console import Meter, note, warn
from pipeline.base.errors import UserError
from pipeline.rubrics import signals_table
from pipeline.store import rowkeys, runfolder, shards
from pipeline.store.columns import ATTEMPTS, GRADES, KEY, MEANS, SIGNALS, VERDICTS
from pipeline.store.rowkeys import Ints
from pipeline.store.runfolder import Run

LONGEST = 32_768  # tokens that token_ratio is a share of, whatever the run allowed
_MEASURED = ("token_ratio", "repeated_pattern", "completion_bpt")  # from attempts alone

Floats = npt.NDArray[np.float64]


@dataclass
class _Measured:
    """What attempts alone tell: one entry a row."""

    keys: Ints
    columns: dict[str, Any]
    left_out: int = 0  # log-probs that are not finite


def signals(run: Run) -> None:
    """Make the signals table of a run, or what has changed of it.

    Log-probs are streamed, a few attempts at a time, and read only when attempts have changed; new
    grades or verdicts are joined to what is stored. A row is there for every attempt; what is not
    known (no grade, no verdict, no log-probs) is null.

    Raises:
        UserError: when nothing was generated or graded, or the folder was made with other settings.
        DamagedData: when stored attempts cannot be read; they are set aside and owed again.

    Source: arXiv 2510.04265, appendix D, base signals.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg))
    ids = rowkeys.question_ids(run)
    now = signals_table.sources(run)
    if not now["attempts"]:
        raise UserError(f"{run.path}: no attempts yet; run `python -m pipeline generate`")
    if not now["grades"]:
        raise UserError(f"{run.path}: nothing graded yet; run `python -m pipeline grade` first")
    before = signals_table.stored(run)
    if before is not None and before[1] == now:
        note(f"signals: nothing owed, {before[0].num_rows} attempts")
        return
    if before is not None and all(before[1].get(k) == now[k] for k in ("attempts", "questions")):
        measured = _known(before[0], ids)
    else:
        measured = _measured(run, ids)
    table = _joined(run, ids, measured)
    signals_table.write(run, table, now)
    _report(table, measured)


def bits_per_token(logprobs: pa.ListArray, skip_first: bool = False) -> tuple[Floats, int]:
    """Mean of -log2 p over the finite log-probs of each row.

    Args:
        logprobs: a list of natural log-probs per row; may be null.
        skip_first: leave the first of each row out, which for a prompt has none.

    Returns:
        Bits per token, float64, shape (rows,), NaN where no log-prob is finite; and how many of
        all were left out because they are not.

    >>> bits, left_out = bits_per_token(pa.array([[math.log(0.5), math.log(0.25)], [], None,
    ...                                           [-math.inf, math.log(0.5)]]))
    >>> bits.round(6).tolist(), left_out
    ([1.5, nan, nan, 1.0], 1)
    """
    lengths = pc.fill_null(pc.list_value_length(logprobs), 0).to_numpy().astype(np.int64)
    values = logprobs.flatten().to_numpy(zero_copy_only=False)
    some = lengths > 0
    starts = (np.cumsum(lengths) - lengths)[some]
    finite = np.isfinite(values)
    left_out = int(values.size - np.count_nonzero(finite))
    if skip_first and starts.size:
        left_out -= int(np.count_nonzero(~finite[starts]))
        finite[starts] = False
    sums, counts = np.zeros(lengths.size), lengths.copy()
    if starts.size:
        if not finite.all():
            values = np.where(finite, values, values.dtype.type(0))
            counts[some] = np.add.reduceat(finite, starts, dtype=np.int64)
        sums[some] = np.add.reduceat(values, starts, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        bits = np.where(counts > 0, -sums / counts / math.log(2) + 0.0, np.nan)  # no -0.0
    return bits, left_out


def _measured(run: Run, ids: pa.Array) -> _Measured:
    """Stream the attempts."""
    damage = shards.Damage()
    parts: list[_Measured] = []
    columns = [*KEY, "finish_reason", "completion_tokens", "logprobs"]
    total = len(ids) * run.cfg.sampling.trials
    with Meter("signals", total) as meter:
        for batch in shards.batches(run.attempts, ATTEMPTS, columns, damage):
            bits, left_out = bits_per_token(batch["logprobs"])
            ended = pc.equal(batch["finish_reason"], "stop")
            measured = {  # NaN where a record does not say it
                "token_ratio": _floats(batch["completion_tokens"]) / LONGEST,
                "repeated_pattern": 1 - _floats(ended),
                "completion_bpt": bits,
            }
            parts.append(_Measured(rowkeys.encode(batch, ids), measured, left_out))
            meter.advance(batch.num_rows)
    runfolder.set_aside_attempts(run, damage)
    if not parts:
        raise UserError(f"{run.path}: no attempts yet; run `python -m pipeline generate`")
    keys = np.concatenate([part.keys for part in parts])
    order = np.argsort(keys)
    order = order[keys[order] >= 0]  # attempts at questions that the run no longer has
    arrays = {
        name: np.concatenate([part.columns[name] for part in parts])[order] for name in _MEASURED
    }
    return _Measured(keys[order], arrays, sum(part.left_out for part in parts))


def _known(table: pa.Table, ids: pa.Array) -> _Measured:
    """What stored signals tell of attempts that have not changed."""
    columns = {name: _floats(table[name].combine_chunks()) for name in _MEASURED}
    return _Measured(rowkeys.encode(table.combine_chunks(), ids), columns)


def _joined(run: Run, ids: pa.Array, measured: _Measured) -> pa.Table:
    keys, columns = measured.keys, measured.columns
    prompts = pa.array([q["prompt_logprobs"] for q in run.questions], pa.list_(pa.float32()))
    prompt_bits, left_out = bits_per_token(prompts, skip_first=True)
    if left_out:
        note(f"signals: {left_out} prompt log-probs are not finite and left out of the means")
    question = keys >> 32
    means = _means(run, ids, keys)
    grade = rowkeys.aligned(run.grades, GRADES, ["has_box", "outcome"], keys, ids, "grade")
    folder = run.path / "verdicts"
    verdict = rowkeys.aligned(folder, VERDICTS, ["a", "b", "c"], keys, ids, "verify")
    prompt_bpt = _or(prompt_bits[question], means["prompt_mean_logprob"])
    completion_bpt = _or(columns["completion_bpt"], means["completion_mean_logprob"])
    return pa.table(
        {
            "question_id": ids.take(pa.array(question)),
            "trial": pa.array((keys & 0xFFFFFFFF).astype(np.int32)),
            "has_box": grade["has_box"],
            "is_correct": pc.equal(grade["outcome"], "correct"),
            "token_ratio": _nullable(columns["token_ratio"]),
            "repeated_pattern": pc.cast(_nullable(columns["repeated_pattern"]), pa.bool_()),
            "prompt_bpt": _nullable(prompt_bpt),
            "completion_bpt": _nullable(completion_bpt),
            **verdict,
        },
        schema=SIGNALS,
    )


def _means(run: Run, ids: pa.Array, keys: Ints) -> dict[str, Floats]:
    """Bits per token from the means of imported records, in the order of `keys`; else NaN."""
    names = MEANS.names[len(KEY) :]
    logprobs = rowkeys.aligned(run.path / "means", MEANS, names, keys, ids, "import")
    with np.errstate(invalid="ignore"):
        bits = {name: -_floats(logprobs[name]) / math.log(2) + 0.0 for name in names}
    return {name: np.where(np.isfinite(mean), mean, np.nan) for name, mean in bits.items()}


def _or(first: Floats, second: Floats) -> Floats:
    return np.where(np.isnan(first), second, first)


def _floats(column: pa.Array) -> Floats:
    """As float64, NaN for null.

    >>> _floats(pa.array([True, None])).tolist()
    [1.0, nan]
    """
    numbers: Floats = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    return numbers


def _nullable(values: npt.NDArray[Any]) -> pa.Array:
    return pa.array(values.astype(np.float32), mask=np.isnan(values))


def _report(table: pa.Table, measured: _Measured) -> None:
    n = table.num_rows
    note(f"signals: {n} attempts")
    if measured.left_out:
        note(f"signals: {measured.left_out} log-probs are not finite and left out of the means")
    ungraded = table["is_correct"].null_count
    if ungraded:
        warn(f"{ungraded} of {n} attempts are not graded; run `grade`, until then they count not")
    unjudged = table["c"].null_count
    if unjudged == n:
        note("signals: no verdicts, so A, B and C are empty")
    elif unjudged:
        warn(f"{unjudged} of {n} attempts have no verdict; run `verify`, until then they count not")
