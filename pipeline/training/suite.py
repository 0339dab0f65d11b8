"""MaP's fourteen benchmarks and their protocols, and its Tables 1, 2 and 4 in the same form.

Generative benchmarks are sampled, for Pass@k, and decoded greedily. Where a dataset has a column of
options the likeliest letter counts; MMLU and CMMLU are sampled, too, for Table 4. AGIEval is its
seven English parts that have a dataset here, as one list of questions.

Source: MaP (Wang et al., 2025), section 3 and Tables 1, 2 and 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settle import Request
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig
from bayes_at_n.pipeline.display.table import Table, columns
from bayes_at_n.pipeline.training.cells import Row, Rows, grouped, names, where

if TYPE_CHECKING:
    from bayes_at_n.pipeline.training.tracks import Track


class Benchmark(NamedTuple):
    """A benchmark of MaP: its datasets here, and the kinds of their runs ("": sampled)."""

    datasets: Sequence[str]
    kinds: Sequence[str]
    trials: int = 16


_PARTS = "aqua-rat logiqa-en lsat-ar lsat-lr lsat-rc math sat-math"
_SAMPLED, _GREEDY, _CHOICE = ("", "greedy"), ("greedy",), ("likelihood",)
BENCHMARKS = {
    "AGIEval": Benchmark([f"agieval-{part}" for part in _PARTS.split()], _GREEDY),
    "RACE": Benchmark(["race"], _CHOICE),
    "SQuAD2.0": Benchmark(["squad2"], _GREEDY),
    "MMLU": Benchmark(["mmlu"], ("", "likelihood"), 4),
    "CMMLU": Benchmark(["cmmlu"], ("", "likelihood"), 4),
    "CEval": Benchmark(["ceval"], _CHOICE),
    "GSM8K": Benchmark(["gsm8k"], _SAMPLED),
    "MATH": Benchmark(["math"], _SAMPLED),
    "GSM-Plus": Benchmark(["gsm-plus"], _GREEDY),
    "CMATH": Benchmark(["cmath"], _GREEDY),
    "HumanEval": Benchmark(["humaneval"], _SAMPLED),
    "MBPP": Benchmark(["mbpp"], _SAMPLED),
    "MBPP-Plus": Benchmark(["mbpp-plus"], _GREEDY),
    "HumanEval-Plus": Benchmark(["humaneval-plus"], _GREEDY),
}
_TABLE_1 = ("GSM8K", "MATH", "HumanEval", "MBPP")
_TABLE_4 = {
    "Math (Gen)": _TABLE_1[:2],
    "Code (Gen)": _TABLE_1[2:],
    "Knowledge (MC)": ("MMLU", "CMMLU"),
}


def protocols(settings: Request[TrajectoryConfig]) -> Iterator[tuple[list[str], Sequence[str]]]:
    """Yield the settings of each dataset's runs, and their kinds.

    Raises UserError: a suite, and a dataset beside it.
    """
    [model], cfg = settings.models, settings.cfg
    if not cfg.suite:
        kinds = ("", "greedy")[: 1 + cfg.greedy]
        yield from (([*model, *dataset], kinds) for dataset in settings.datasets)
        return
    if any(settings.datasets):
        raise UserError(f"{settings.datasets[0][0]}: leave it out; suite={cfg.suite} has its own")
    for benchmark in BENCHMARKS.values():
        for name in benchmark.datasets:
            # Typed settings come last, so they replace the suite's.
            first = [f"dataset={name}", f"sampling.trials={benchmark.trials}"]
            yield [*first, *model], benchmark.kinds


def label(dataset: str) -> str:
    """Return the benchmark that a dataset belongs to; itself if to none."""
    return next((name for name, of in BENCHMARKS.items() if dataset in of.datasets), dataset)


def combined(tracks: Sequence[Track]) -> list[Track]:
    """Name tracks after their benchmarks; the parts of one become one list of questions."""
    from bayes_at_n.pipeline.training.protocols import Tokens

    found: list[Track] = []
    by_key = {(track.training, track.window, track.dataset): track for track in tracks}
    for training, window in dict.fromkeys((t.training, t.window) for t in tracks):
        for name, benchmark in BENCHMARKS.items():
            parts = [by_key.get((training, window, dataset)) for dataset in benchmark.datasets]
            if None in parts:  # of a training that is watched: not yet
                continue
            first, *more = (part for part in parts if part is not None)
            if more:
                R = np.concatenate([first.R, *(part.R for part in more)], axis=1)
                first = first._replace(R=R, tokens=Tokens(None, None))
            found.append(first._replace(dataset=name))
    return found


def tables(rows: Rows) -> dict[str, Table]:
    """Return MaP's Tables 1, 2 and 4 from rows of `stability`, by the stem of their files.

    Table 1 has the largest window, Table 2 the smallest, with greedy decoding or likelihood.
    """
    from bayes_at_n.pipeline.training import forms
    from bayes_at_n.pipeline.training.protocols import AVG, GREEDY, PASS

    windows = sorted({row["window"] for row in rows} - {1})
    first = [
        row for row in rows if row["dataset"] in _TABLE_1 and row["window"] in (1, *windows[-1:])
    ]
    shown = [GREEDY.name, AVG, f"{PASS}2", f"{PASS}4"]
    last = [row for of in _TABLE_4.values() for name in of for row in where(rows, dataset=name)]
    found = forms.of_map(first) | {
        stem: table
        for stem, table in forms.of_map([row for row in last if row["metric"] in shown]).items()
        if stem == "passk"
    }
    found.pop("merge", None)
    groups = {f"of_{name}": group for group, names_ in _TABLE_4.items() for name in names_}
    if passk := found.get("passk"):
        heads = [replace(head, group=groups.get(head.key, "")) for head in passk.columns]
        note = "Greedy of MMLU and CMMLU: the likeliest letter"
        found["passk"] = replace(passk, columns=heads, notes=[*passk.notes, note])
    if windows:
        found["merge"] = _table_2(where(rows, steps="common"), windows[0])
    return {stem: table for stem, table in found.items() if table.rows}


def _table_2(common: Rows, window: int) -> Table:
    from bayes_at_n.pipeline.training.protocols import AVG, GREEDY

    lines: list[Row] = []
    for (training, name), group in grouped(common, "training", "dataset").items():
        taus = {(row["window"], row["metric"]): row["tau"] for row in group}
        metric = GREEDY.name if (1, GREEDY.name) in taus else AVG
        before, after = taus.get((1, metric)), taus.get((window, metric))
        if before is not None and after is not None:
            cells = {"original": before, "merge": after, "improve": after - before}
            lines.append({"training": training, "benchmark": name, **cells})
    heads = [
        *names(lines, training="training"),
        *columns(align="left", benchmark="Benchmarks"),
        *columns("{:.3f}", original="Original", merge="Merge", improve="Improve"),
    ]
    note = f"MaP's τ over the shared steps, Merge@{window}; greedy decoding or the likeliest letter"
    return Table("what merging changes (MaP's Table 2)", heads, lines, [note])
