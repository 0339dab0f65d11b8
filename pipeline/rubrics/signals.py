"""signals: the nine base signals of every attempt, on which all rubrics rest.

Bits per token are -mean log2 p of the sampled tokens, and of the prompt without its first token,
which has no log-prob. Some models give infinite log-probs for a few tokens: those are left out of
the mean and counted. Where no finite log-prob is left the signal is null. Imported records have
means of log-probs in place of lists: those count where an attempt, or a prompt, has no list.
"""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import Meter, mention, note, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.rubrics import signals_table
from bayes_at_n.pipeline.store import graded, parquet, rowkeys, runfolder, shards, verdicts
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, MEANS, SIGNALS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.numerics.inputs import Floats

LONGEST = 32_768  # tokens that token_ratio is a share of, whatever the run allowed
# What attempts alone tell; null where a record does not say it.
_MEASURED = pa.schema(
    [SIGNALS.field(name) for name in (*KEY, "token_ratio", "repeated_pattern", "completion_bpt")]
)


def signals(run: Run) -> None:
    """Make the signals table of a run, or what has changed of it.

    Log-probs are streamed, a few attempts at a time, and read only when attempts have changed; new
    grades or verdicts are joined to what is stored. A row is there for every attempt; what is not
    known (no grade, no verdict, no log-probs) is null. Raises UserError: when nothing was generated
    or graded, or the folder was made with other settings. DamagedData: when stored attempts cannot
    be read; they are set aside and owed again. Source: arXiv 2510.04265, appendix D, base signals.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg))
    ids = rowkeys.question_ids(run)
    sources = signals_table.sources(run)
    if not sources["attempts"]:
        raise UserError(f"{run.path}: no attempts yet; run `{PROGRAM} generate`")
    if not sources["grades"]:
        raise UserError(f"{run.path}: nothing graded yet; run `{PROGRAM} grade` first")
    stored = signals_table.stored(run)
    if stored and not signals_table.changed(stored, sources):
        mention(f"signals: nothing owed, {stored.table.num_rows} attempts")
        answer({"run": run.path, "attempts": stored.table.num_rows})
        return
    if stored and all(
        stored.record.get(name) == sources[name] for name in ("attempts", "questions")
    ):
        measured = stored.table.select(_MEASURED.names)
    else:
        measured = _measured(run, ids)
    table = _joined(run, ids, measured)
    signals_table.write(run, table, sources)
    _report(table)
    answer({"run": run.path, "attempts": table.num_rows})


def bits_per_token(logprobs: pa.ListArray, skip_first: bool = False) -> tuple[Floats, int]:
    """Mean of -log2 p over the finite log-probs of each row.

    `logprobs` holds a list of natural log-probs per row, which may be null; `skip_first` leaves out
    the first of each, which for a prompt has none. Returns bits per token, float64, shape (rows,),
    NaN where no log-prob is finite; and how many of all were left out because they are not.

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


def _measured(run: Run, ids: pa.Array) -> pa.Table:
    """Stream the attempts: columns _MEASURED, in the order of questions and trials."""
    damage = parquet.Damage()
    parts: list[pa.Table] = []
    infinite = 0
    columns = [*KEY, "finish_reason", "completion_tokens", "logprobs"]
    with Meter("signals", len(ids) * run.cfg.sampling.trials) as meter:
        for batch in shards.batches(run.attempts, ATTEMPTS, columns, damage):
            bits, left_out = bits_per_token(batch["logprobs"])
            infinite += left_out
            measured = {
                **{name: batch[name] for name in KEY},
                "token_ratio": pc.divide(batch["completion_tokens"].cast(pa.float64()), LONGEST),
                "repeated_pattern": pc.not_equal(batch["finish_reason"], "stop"),
                "completion_bpt": _nullable(bits),
            }
            parts.append(pa.table(measured, schema=_MEASURED))
            meter.advance(batch.num_rows)
    runfolder.set_aside_attempts(run, damage)
    if not parts:
        raise UserError(f"{run.path}: no attempts yet; run `{PROGRAM} generate`")
    if infinite:
        note(f"signals: {infinite} log-probs are not finite and left out of the means")
    table = pa.concat_tables(parts)
    keys = rowkeys.encode(table, ids)
    order = np.argsort(keys)
    return table.take(order[keys[order] >= 0])  # not of questions that the run no longer has


def _joined(run: Run, ids: pa.Array, measured: pa.Table) -> pa.Table:
    measured = measured.combine_chunks()
    keys = rowkeys.encode(measured, ids)
    prompts = pa.array([q["prompt_logprobs"] for q in run.questions], pa.list_(pa.float32()))
    prompt_bits, left_out = bits_per_token(prompts, skip_first=True)
    if left_out:
        note(f"signals: {left_out} prompt log-probs are not finite and left out of the means")
    names = [name for name in MEANS.names if name.endswith("mean_logprob")]
    means = rowkeys.aligned(run, "means", names, keys)
    bits = {name: _nullable(_bits(mean)) for name, mean in means.items()}
    grades = graded.graded(run, ["has_box"])
    known = rowkeys.encode(grades, ids)
    grade = rowkeys.in_order(grades, known, ["has_box", "outcome"], keys)
    labels = verdicts.aligned(run, ["a", "b", "c"], keys)
    if run.cfg.dataset.judge == "unmatched" and labels["a"].null_count:
        mention("signals: dataset.judge=unmatched: verdicts on some attempts, so A, B, C are empty")
        labels = {name: pa.nulls(keys.size, pa.float32()) for name in labels}
    prompt_bpt = _nullable(prompt_bits[keys >> 32])
    columns = {
        **{name: measured[name] for name in _MEASURED.names},
        "has_box": grade["has_box"],
        "is_correct": pc.equal(grade["outcome"], "correct"),
        "prompt_bpt": pc.coalesce(prompt_bpt, bits["prompt_mean_logprob"]),
        "completion_bpt": pc.coalesce(measured["completion_bpt"], bits["completion_mean_logprob"]),
        **labels,
    }
    return pa.table(columns, schema=SIGNALS)


def _bits(logprobs: pa.Array) -> Floats:
    """Bits of natural log-probs, NaN where there is no finite one."""
    values = logprobs.cast(pa.float64()).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        bits = -values / math.log(2) + 0.0
    return np.where(np.isfinite(bits), bits, np.nan)


def _nullable(values: Floats) -> pa.Array:
    return pa.array(values.astype(np.float32), mask=np.isnan(values))


def _report(table: pa.Table) -> None:
    n = table.num_rows
    mention(f"signals: {n} attempts")
    if ungraded := table["is_correct"].null_count:
        warn(f"{ungraded} of {n} attempts are not graded; run `grade`, until then they count not")
    unjudged = table["c"].null_count
    if unjudged == n:
        mention("signals: no verdicts, so A, B and C are empty")
    elif unjudged:
        warn(f"{unjudged} of {n} attempts have no verdict; run `verify`, until then they count not")
