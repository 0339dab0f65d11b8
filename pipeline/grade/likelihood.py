"""Grade runs with `sampling.likelihood`: an attempt chooses the option with the largest value."""

from typing import Any, cast

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store.columns import GRADES, KEY
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.metrics import By
from bayes_at_n.scoring.metrics.options import option_values
from bayes_at_n.scoring.numerics.inputs import Floats
from bayes_at_n.verifiers import LETTERS


def values(cfg: RunConfig, options: Any) -> Floats:
    """Return the values of options (rows, most options) by `grading.likelihood`; -inf: no option.

    `options`: the column of the attempts table.
    """
    options = options.combine_chunks()
    lengths, flat = options.value_lengths().to_numpy(), options.flatten()
    logprob, tokens, size, alone = (field.to_numpy() for field in flat.flatten())
    table = np.full((len(lengths), lengths.max(initial=1)), -np.inf)
    by = cast(By, cfg.grading.likelihood)
    found = option_values(logprob, tokens, size, alone, by)
    table[np.arange(table.shape[1]) < lengths[:, None]] = found
    return table


def graded(run: Run, rows: pa.Table) -> pa.Table:
    """Return the grades of attempts as a table: the letter of the option that was chosen."""
    golds = {row["question_id"]: row["gold"] for row in run.questions}
    right = [golds[name] for name in rows["question_id"].to_pylist()]
    scores = values(run.cfg, rows["options"])
    chosen = [LETTERS[i] for i in scores.argmax(axis=1)]
    margins = np.sort(scores, axis=1)[:, -2:]
    columns = {name: rows[name] for name in KEY} | {
        "has_box": [True] * len(chosen),
        "box": ["boxed"] * len(chosen),
        "answer": chosen,
        "outcome": ["correct" if a == b else "wrong" for a, b in zip(chosen, right, strict=True)],
        "layer": ["likelihood"] * len(chosen),
        "reason": [f"log-prob {best:.4f}, next {next_:.4f}" for next_, best in margins],
        "grader": [f"likelihood:{run.cfg.grading.likelihood}"] * len(chosen),
    }
    return pa.table(columns, schema=GRADES)
