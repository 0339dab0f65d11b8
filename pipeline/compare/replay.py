"""What run A sampled, as run B's engine sees it: log-probs of the same tokens, side by side."""

import contextlib
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base.console import Meter, note
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.compare.pair import Pair
from bayes_at_n.pipeline.prepare import sizing
from bayes_at_n.pipeline.store import parquet, rowkeys, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.numerics.inputs import Floats, Ints

_AT_ONCE = 32  # attempts, between two looks at the clock
OUT = "or leave the replay out: replay=0"


class Replay(NamedTuple):
    """K attempts of A, and all their n tokens that have a finite log-prob under both."""

    questions: Ints  # (K,)
    attempts: Ints  # (n,) which of the K
    logprobs_a: Floats  # (n,) as A's engine stored them, natural
    logprobs_b: Floats  # (n,) of the same tokens as a prompt of B's engine
    left_out: int  # tokens without a finite log-prob
    engine: dict[str, Any]  # B's, as it describes itself


def replay(pair: Pair, most: int) -> Replay:
    """Give attempts of A to B's engine as prompts, spread evenly over questions and trials.

    The engine is loaded as the settings in B's folder say, with the room that B's own attempts had.
    What of A is longer is cut there, as is the last token of an attempt that fills the room. Raises
    UserError: A stored no tokens or log-probs, B's prompts are other tokens, or its engine cannot
    be loaded, fails, or gives no log-probs of prompts.
    """
    run_a, run_b = pair.runs
    for run in pair.runs:
        if run.cfg.prompt.shuffle == "trial":
            raise UserError(
                f"{run.path}: prompt.shuffle=trial: every attempt has a prompt of its own; use runs"
                f" with prompt.shuffle=question, {OUT}"
            )
    keys = _chosen(pair, most)
    rows = [
        [run.questions[i] for i in of] for run, of in zip(pair.runs, pair.questions, strict=True)
    ]
    prompts, others = ([row["prompt_token_ids"] for row in of_run] for of_run in rows)
    for row, prompt, other in zip(rows[1], prompts, others, strict=True):
        if prompt is None or prompt != other:
            raise UserError(
                f"{run_b.path / 'questions.parquet'}: prompt_token_ids: those of question"
                f" {row['question_id']} are not those in {run_a.path}; give both runs one"
                f" tokenizer, chat template and prompt, {OUT}"
            )
    room = max(len(row["prompt_token_ids"]) + row["max_tokens"] for row in rows[1]) - 1
    stored = _stored(run_a, pair, keys)
    sequences = [
        (prompts[q] + tokens)[:room] for (q, _), (tokens, _) in zip(keys, stored, strict=True)
    ]
    name = run_b.cfg.engine.name
    note(f"loading {run_b.cfg.model.name} with {name} as in {run_b.path} ...")
    try:
        cfg = sizing.alone(run_b.cfg, run_b.questions)
        engine = engines.load(cfg, room + 1, run_b.questions)
    except UserError as error:
        raise type(error)(f"{error}; {OUT}") from error
    described, seen = engine.describe(), []
    try:
        with Meter("replay", len(sequences)) as meter:
            for start in range(0, len(sequences), _AT_ONCE):
                part = sequences[start : start + _AT_ONCE]
                seen += engine.prompt_logprobs(part)
                meter.advance(len(part))
    except Exception as error:  # engines raise whatever their parts raise
        raise UserError(
            f"engine={name} failed while replaying: {one_line(error)}; with less memory in use"
            f" (replay=50, or engine.batch_size in {run_b.path / 'config.yaml'}) it may work, {OUT}"
        ) from error
    finally:
        with contextlib.suppress(Exception):  # after Ctrl-C its processes may be gone already
            engine.close()
    if any(np.shape(v) != (len(ids),) for v, ids in zip(seen, sequences, strict=True)):
        raise UserError(
            f"engine={name}: gives no log-probs of prompts; give both runs one that does, {OUT}"
        )
    of_b = [values[len(prompts[q]) :] for (q, _), values in zip(keys, seen, strict=True)]
    of_a = [np.array(logprobs[: len(b)]) for (_, logprobs), b in zip(stored, of_b, strict=True)]
    attempts = np.repeat(np.arange(len(keys)), [len(values) for values in of_b])
    a, b = (np.concatenate(values).astype(np.float64) for values in (of_a, of_b))
    finite = np.isfinite(a) & np.isfinite(b)
    left_out = int((~finite).sum())
    questions = np.array([question for question, _ in keys])
    return Replay(questions, attempts[finite], a[finite], b[finite], left_out, described)


def _chosen(pair: Pair, most: int) -> list[tuple[int, int]]:
    """Question and trial of up to so many attempts of A, evenly over those that are compared."""
    run, own, trials = pair.runs[0], pair.attempts[0], pair.trials[0]
    usable = (own.rows[:, trials] >= 0) & np.isfinite(own.logprobs[:, trials])
    places = np.argwhere(usable)
    if not places.size:
        raise UserError(
            f"{run.path / 'attempts'}: token_ids, logprobs: none are stored, so nothing can be"
            f" replayed; sample A with sampling.logprobs=true, {OUT}"
        )
    picked = places[
        np.unique(np.linspace(0, len(places) - 1, min(most, len(places))).round().astype(int))
    ]
    return [(question, int(trials[trial])) for question, trial in picked.tolist()]


def _stored(
    run: Run, pair: Pair, keys: list[tuple[int, int]]
) -> list[tuple[list[int], list[float]]]:
    """Tokens and log-probs of attempts of A, in the order of their keys."""
    ids = rowkeys.question_ids(run).take(pa.array(pair.questions[0]))
    wanted = np.array([question << 32 | trial for question, trial in keys])
    found: list[Any] = [None] * len(keys)
    columns = [*KEY, "token_ids", "logprobs"]
    for batch in shards.batches(run.attempts, ATTEMPTS, columns, parquet.Damage()):
        at = rowkeys.rows_of(rowkeys.encode(batch, ids), wanted)
        some = batch.filter(pa.array(at >= 0))
        both = zip(some["token_ids"].to_pylist(), some["logprobs"].to_pylist(), strict=True)
        for place, lists in zip(at[at >= 0].tolist(), both, strict=True):
            found[place] = lists
    return found
