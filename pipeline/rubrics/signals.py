"""The nine base signals of every attempt, on which all rubrics rest.

What is dear to compute, from the attempts alone, is a derived table; grades, verdicts and the bits
of prompts are joined to it when somebody asks. Bits per token are -mean log2 p of the sampled
tokens, and of the prompt without its first token, which has no log-prob. Infinite log-probs are
left out of the mean; without a finite one the signal is null. Means of log-probs, which came with
imported records, count where an attempt, or a prompt, has no list.
"""

import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import Meter, mention, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.store import graded, origin, parquet, rowkeys, runfolder, tables, verdicts
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, SIGNALS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Derived, Part
from bayes_at_n.scoring.numerics.inputs import Floats

LONGEST = 32_768  # tokens that token_ratio is a share of, whatever the run allowed
OF_ATTEMPTS = ("token_ratio", "repeated_pattern", "completion_bpt")
MEASURED = pa.schema([SIGNALS.field(name) for name in (*KEY, *OF_ATTEMPTS)])
SIGNALS_TABLE = Derived("signals", MEASURED, "categorize", 1)
SOURCES = ("attempts", "grades", "verdicts", "means", "questions.parquet")  # of a run folder
_READ = [*KEY, "finish_reason", "completion_tokens", "logprobs"]
_BITS = ("prompt", "completion")  # of which there are means


def make(run: Run) -> None:
    """Measure the parts of attempts that were not measured yet; log-probs are streamed.

    Raises DamagedData: stored attempts cannot be read; they are set aside and owed again.
    """
    damage = parquet.Damage()
    owed = SIGNALS_TABLE.owed(run, {})
    try:
        with Meter("signals, parts", len(owed)) as meter:
            for part in owed:
                _measure(run, part, damage)
                meter.advance(1)
    except OSError as error:
        if error.errno not in atomic.GONE:
            raise
        make(run)  # a journal was sealed since the listing
        return
    SIGNALS_TABLE.sweep(run)
    runfolder.set_aside_attempts(run, damage)


def _measure(run: Run, part: Part, damage: parquet.Damage) -> None:
    """Write the rows of a part that can be read."""
    found = [MEASURED.empty_table()]
    for batch in parquet.read(part.path, ATTEMPTS, _READ, damage):
        bits = _nullable(bits_per_token(batch["logprobs"]))
        ratio = pc.divide(batch["completion_tokens"].cast(pa.float64()), LONGEST)
        repeated = pc.not_equal(batch["finish_reason"], "stop")
        columns = [*(batch[name] for name in KEY), ratio, repeated, bits]
        found.append(pa.table(dict(zip(MEASURED.names, columns, strict=True)), MEASURED))
    if part.path.suffix == ".journal" or part.path not in damage.lines:
        rows = pa.concat_tables(found)
        SIGNALS_TABLE.write(run.path, part.stem, rows, {}, part.mark)


def stale(run: Run) -> dict[Path, str]:
    """Return the files of signals that were made otherwise, and how."""
    return SIGNALS_TABLE.stale(run, {})


def made_from(run: Run) -> str:
    """A hash of all that the signals of a run rest on, for whatever is made of all of them."""
    judge = run.cfg.dataset.judge
    verifier = asdict(run.cfg.verifier) if judge else None
    return origin.hashed([SIGNALS_TABLE.version, judge, verifier, tables.marks(run.path, *SOURCES)])


def read(run: Run) -> pa.Table:
    """The signals of every attempt, in the order of questions and trials; null where not known.

    Of an import without attempts those of its outcomes. Raises UserError: nothing was measured yet,
    or as `graded.graded`.
    """
    ids = rowkeys.question_ids(run)
    measured, pending = SIGNALS_TABLE.read(run, OF_ATTEMPTS, {})
    if pending:
        text = f"signals of {pending} attempts are not made yet; run `{PROGRAM} categorize`"
        if not measured.num_rows:
            raise UserError(f"{run.path}: {text}")
        warn(f"{run.path}: {text}; until then they count not")
    grades = graded.graded(run, ["has_box"])
    of_measured, of_grades = rowkeys.encode(measured, ids), rowkeys.encode(grades, ids)
    keys = np.sort(of_measured if measured.num_rows else of_grades)
    keys = keys[keys >= 0]
    own = rowkeys.in_order(measured, of_measured, OF_ATTEMPTS, keys)
    grade = rowkeys.in_order(grades, of_grades, ["has_box", "outcome"], keys)
    of_means = [f"{name}_mean_logprob" for name in _BITS]
    means = rowkeys.in_order(*rowkeys.keyed(run, "means", of_means), of_means, keys)
    prompts, completions = (_of_means(mean) for mean in means.values())
    lists = pa.array([q["prompt_logprobs"] for q in run.questions], pa.list_(pa.float32()))
    of_prompts = bits_per_token(lists, skip_first=True)
    columns = {
        "question_id": ids.take(pa.array(keys >> 32)),
        "trial": pa.array(keys & 0xFFFFFFFF, pa.int32()),
        "has_box": grade["has_box"],
        "is_correct": pc.equal(grade["outcome"], "correct"),
        "token_ratio": own["token_ratio"],
        "repeated_pattern": own["repeated_pattern"],
        "prompt_bpt": pc.coalesce(_nullable(of_prompts[keys >> 32]), prompts),
        "completion_bpt": pc.coalesce(own["completion_bpt"], completions),
        **_labels(run, keys),
    }
    return pa.table(columns, schema=SIGNALS)


def _labels(run: Run, keys: rowkeys.Ints) -> dict[str, pa.Array]:
    """The verifier's probabilities; with judge=unmatched none, as only some attempts have them."""
    labels = verdicts.aligned(run, [*"abc"], keys)
    if run.cfg.dataset.judge == "unmatched" and labels["a"].null_count:
        mention("signals: dataset.judge=unmatched: verdicts on some attempts, so A, B, C are empty")
        labels = {name: pa.nulls(keys.size, pa.float32()) for name in labels}
    return labels


def bits_per_token(logprobs: pa.ListArray, skip_first: bool = False) -> Floats:
    """Return the mean of -log2 p over the finite log-probs of each row.

    `logprobs` holds a list of natural log-probs per row, which may be null; `skip_first` leaves out
    the first of each, which for a prompt has none. Returns float64, shape (rows,), NaN where no
    log-prob is finite.
    """
    lengths = pc.fill_null(pc.list_value_length(logprobs), 0).to_numpy().astype(np.int64)
    values = logprobs.flatten().to_numpy(zero_copy_only=False)
    some = lengths > 0
    starts = (np.cumsum(lengths) - lengths)[some]
    finite = np.isfinite(values)
    if skip_first and starts.size:
        finite[starts] = False
    sums, counts = np.zeros(lengths.size), lengths.copy()
    if starts.size:
        if not finite.all():
            values = np.where(finite, values, values.dtype.type(0))
            counts[some] = np.add.reduceat(finite, starts, dtype=np.int64)
        sums[some] = np.add.reduceat(values, starts, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts > 0, -sums / counts / math.log(2) + 0.0, np.nan)  # no -0.0


def _of_means(logprobs: pa.Array) -> pa.Array:
    """Bits of mean log-probs."""
    lists = pa.ListArray.from_arrays(np.arange(len(logprobs) + 1), logprobs.fill_null(np.nan))
    return _nullable(bits_per_token(lists))


def _nullable(values: Floats) -> pa.Array:
    return pa.array(values.astype(np.float32), mask=np.isnan(values))
