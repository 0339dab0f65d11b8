"""Shared by the studies: the paper's printed numbers, results, groups of models, columns."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import yaml  # type: ignore[import-untyped]
from matplotlib.figure import Figure

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare.cohort import Bits as Bits
from bayes_at_n.pipeline.compare.cohort import Cohort, complete
from bayes_at_n.pipeline.config.compose import CONFIGS
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.scoring.metrics.table import Metric, parse
from bayes_at_n.scoring.studies.convergence import Resample, TauCurve

TASKS = {"aime24": "AIME'24", "aime25": "AIME'25", "hmmt25": "HMMT'25", "brumo25": "BrUMO'25"}
"""The paper's four tasks, by the names of our datasets."""
ELEVEN = tuple(range(1, 12))
"""The numbers in Table 6 of the models of version 000."""
TWENTY = tuple(range(1, 21))


class Printed(NamedTuple):
    """One number of the paper."""

    id: str
    value: float
    version: str  # 000, 001 or both
    where: str
    tolerance: float
    reason: str
    why: str = ""
    relation: Literal["near", "at_least", "at_most"] = "near"
    needs_records: bool = False
    by_construction: bool = False  # ours could not be any other number

    @property
    def study(self) -> str:
        """Return the study that computes it, one of `analysis.STUDIES`."""
        first = self.id.split(".")[0]
        return "convergence" if first == "subset" else first

    def agrees(self, ours: float) -> bool:
        """Return whether our number equals the printed one within the tolerance.

        >>> near = Printed("a", 1.14, "000", "Fig. 3", 0.01, "rounded")
        >>> near.agrees(1.15), near.agrees(1.16), near._replace(relation="at_least").agrees(9)
        (True, False, True)
        """
        slack = self.tolerance * (1 + 1e-9) + 1e-12
        below, above = self.value - slack <= ours, ours <= self.value + slack
        return {"near": below and above, "at_least": below, "at_most": above}[self.relation]


class Subset(NamedTuple):
    """One row of Tables 8 to 10: models by their number in Table 6, and what is printed."""

    row: int
    models: tuple[int, ...]
    printed: Mapping[str, float]  # mean convergence@n by task

    def id(self, task: str) -> str:
        """Return the id of its number for a task."""
        return f"subset.{len(self.models)}.{self.row}.{task}"


@functools.cache
def numbers() -> tuple[Printed, ...]:
    """Read every printed number, those of Tables 8 to 10 included."""
    return (*(number for group in read("printed") for number in _expand(group)), *_of_subsets())


def values(ids: Sequence[str]) -> list[float]:
    """Look up the printed numbers of some ids."""
    known = {number.id: number.value for number in numbers()}
    return [known[name] for name in ids]


@functools.cache
def rows_001() -> tuple[dict[int, str], list[str]]:
    """Return the rows of version 001's Table 2: those with a known model, by number, and others.

    >>> named, others = rows_001()
    >>> named[7], others[:2], len(named) + len(others)
    ('gpt-oss-high', ['row5', 'row6'], 20)
    """
    start, end = "ranks.001.", ".aime25.ci"
    ids = [n.id for n in numbers() if n.id.startswith(start) and n.id.endswith(end)]
    rows = [name.removeprefix(start).removesuffix(end) for name in ids]
    named = {number: name for number, name in short_names().items() if name in rows}
    return named, [row for row in rows if row not in named.values()]


@functools.cache
def short_names() -> dict[int, str]:
    """Read the short names of Table 6 by number."""
    return {number: names[0] for number, names in read("models").items()}


@functools.cache
def subsets() -> tuple[Subset, ...]:
    """Read the 90 subsets of Tables 8 to 10."""
    content = read("subsets")
    return tuple(
        Subset(row, tuple(models), dict(zip(content["tasks"], values, strict=True)))
        for of_size in content["subsets"].values()
        for row, (models, *values) in enumerate(of_size, 1)
    )


def task_of(dataset: str) -> str | None:
    """Return the paper's task of a dataset, by its name; None for another dataset.

    >>> [task_of(name) for name in ("AIME_2024", "hmmt_feb_2025", "hmmt25_feb", "gsm8k")]
    ['aime24', 'hmmt25', 'hmmt25', None]
    """
    shape = re.fullmatch(r"(aime|hmmt|brumo)(?:feb)?(?:20)?(2\d)(?:feb)?", _plain(dataset))
    task = "".join(shape.groups()) if shape else ""
    return task if task in TASKS else None


def numbers_of(names: Sequence[Sequence[str]]) -> list[int | None]:
    """Return the numbers in Table 6 of models, each with several names; None for other models.

    A model that occurs twice (two runs) counts once: the later one gets None.

    >>> numbers_of([["limo-v2"], ["my-model", "Qwen/Qwen3-4B-Thinking-2507"], ["tiny"]])
    [2, 19, None]
    """
    known = {_plain(name): n for n, all_names in read("models").items() for name in all_names}
    result: list[int | None] = []
    for candidates in names:
        plain = [_plain(name.rpartition("/")[2]) for name in candidates]
        number = next((known[name] for name in plain if name in known), None)
        result.append(None if number in result else number)
    return result


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@functools.cache
def read(name: str) -> Any:
    """Read one file of configs/paper."""
    return yaml.safe_load((CONFIGS / "paper" / f"{name}.yaml").read_text(encoding="utf-8"))


def _expand(group: Mapping[str, Any]) -> Iterator[Printed]:
    """Yield the numbers of one group of printed.yaml: rows of columns, columns, or values."""
    values: Mapping[str, float] = group.get("values", {})
    columns, prefix = group.get("columns", ()), f"{group['prefix']}." if "prefix" in group else ""
    if "rows" in group:
        values = {
            f"{row}.{column}": value
            for row, of_row in group["rows"].items()
            for column, value in zip(columns, of_row, strict=True)
        }
    elif columns:
        values = dict(zip(columns, group["values"], strict=True))
    forced = tuple(f".{column}" for column in group.get("by_construction", ()))
    common = {field: group[field] for field in Printed._fields if field in group}
    common["tolerance"] = float(group["tolerance"])
    for key, value in values.items():
        own = {"id": prefix + key, "value": float(value), "by_construction": key.endswith(forced)}
        yield Printed(**common | own)


def _of_subsets() -> Iterator[Printed]:
    tables = {5: "Table 8", 10: "Table 9", 15: "Table 10"}
    why = (
        "10^4 replicates of theirs. Ours counts a replicate that does not converge as N, which the"
        " printed numbers show to be likely (docs/studies.md); other: of those that converge"
    )
    for subset in subsets():
        for task, value in subset.printed.items():
            where = f"{tables[len(subset.models)]}, mean convergence@n"
            yield Printed(subset.id(task), value, "001", where, 0.5, "bootstrap", why, "near", True)


SCHEMES: tuple[Resample, ...] = ("columns", "rows")
BAYES = parse("bayes")
NAIVE = (
    'Naive Pass@k: section 2.7 writes "naive Pass^k" as 1 - (1 - p)^k, p being the share of correct'
    " trials of a question. That is Pass@k with p put in (a plug-in), not the unbiased Pass@k, and"
    " not Pass^k (all k correct), which it cites; all three are drawn under these names."
)
UNDEFINED = "undefined: replicates, over all N, where all models tie; they enter no mean"


@dataclass
class Result:
    """Tables and figures by the stems of their files, numbers, and notes for the reader."""

    tables: dict[str, Table] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    """By the ids of configs/paper/printed.yaml; NaN if no replicate converged. If known,
    ID.low and ID.high are a spread, and ID.other is the number by another reading of the paper."""
    notes: list[str] = field(default_factory=list)
    """Choices that the paper leaves open, and omissions."""


class Group(NamedTuple):
    """Models of a cohort that are ranked together."""

    label: str
    version: str | None  # of the paper: 000 ranks eleven models, 001 twenty; None: other models
    models: list[int]  # positions in the cohort
    names: list[str]
    title: str  # with the dataset
    stem: str  # of files
    paper_id: str | None  # VERSION.TASK; None of other models or datasets


def showcase(trials: int) -> list[Metric]:
    """Return Bayes@N and those of Pass@2/4/8 for which there are enough trials."""
    return _metrics(("bayes", "pass@{}"), trials)


def judged(trials: int) -> list[Metric]:
    """Return the metrics of the tau figures for which there are enough trials; see `NAIVE`."""
    families = ("bayes", "pass@{}", "naive-pass@{}", "pass^{}", "g-pass@{}:0.5", "mg-pass@{}")
    return _metrics(families, trials)


def _metrics(families: Sequence[str], trials: int) -> list[Metric]:
    names = dict.fromkeys(family.format(k) for family in families for k in (2, 4, 8))
    return [metric for metric in map(parse, names) if metric.k <= trials]


def groups(cohort: Cohort) -> list[Group]:
    """Group all models of a cohort and, where there are more, the paper's twenty and first eleven.

    >>> names = [*short_names().values(), "another"]
    >>> from bayes_at_n.pipeline.compare.cohort import from_arrays
    >>> [(g.label, g.version) for g in groups(from_arrays("d", names, ["q"], [[[1, 0]]] * 21))]
    [('21 models', None), ("the paper's 20", '001'), ("the paper's first 11", '000')]
    """
    numbers, task = paper_numbers(cohort), task_of(cohort.dataset)
    pools = {
        "the paper's 20": ("001", TWENTY),
        "the paper's first 11": ("000", ELEVEN),
    }
    version = next((v for v, pool in pools.values() if {n or 0 for n in numbers} == {*pool}), None)
    ranked = [(f"{len(numbers)} models", version, list(range(len(numbers))))]
    ranked += [
        (label, version, [numbers.index(n) for n in pool])
        for label, (version, pool) in pools.items()
        if {*pool} < {*numbers}  # None is the number of another model
    ]
    return [
        Group(
            label,
            version,
            models,
            [cohort.names[i] for i in models],
            f"{cohort.dataset}, {label}",
            f"{cohort.dataset}_{len(models)}",
            f"{version}.{task}" if version and task else None,
        )
        for label, version, models in ranked
    ]


def paper_numbers(cohort: Cohort) -> list[int | None]:
    """Return each model's number in Table 6, by name of its folder or model; None for others."""
    if not cohort.members:
        return numbers_of([[name] for name in cohort.names])
    models = [(member.name, member.run.cfg.model) for member in cohort.members]
    return numbers_of([[name, model.name, model.id] for name, model in models])


def each_complete(cohorts: Iterable[Cohort]) -> tuple[list[tuple[Cohort, Bits]], list[str]]:
    """Return the complete outcomes of cohorts, and notes on gaps and on cohorts left out.

    Raises UserError: none is left.
    """
    usable, faults, notes = [], [], []
    for cohort in cohorts:
        try:
            outcomes, gaps = complete(cohort)
        except UserError as error:
            faults.append(str(error))
        else:
            usable.append((cohort, outcomes))
            notes += gaps
    if not usable:
        raise UserError("; ".join(faults) or "no runs found")
    return usable, [*(f"left out: {fault}" for fault in faults), *notes]


def tabulated(trials: int) -> list[int]:
    """Return the numbers of trials for which tables have τ."""
    return sorted({n for n in (1, 2, 4, 8, 10, 20, 40, 80) if n < trials} | {trials})


def text(key: str, title: str) -> Column:
    """Return a column of text."""
    return Column(key, title, align="left")


def fixed(key: str, title: str, digits: int = 3, group: str = "") -> Column:
    """Return a column of numbers with a fixed number of decimals."""
    return Column(key, title, format=f"{{:.{digits}f}}", group=group)


def value(masked: Any) -> float | None:
    """Return an element of a masked array, None if it is masked."""
    return None if masked is np.ma.masked else float(masked)


def tau_columns(
    curves: Sequence[TauCurve], trials: Iterable[int], group: str, prefix: str = "n"
) -> dict[Column, list[Any]]:
    """Return columns of Kendall's tau at some numbers of trials, with a row per curve."""
    return {
        fixed(f"{prefix}{n}", f"N = {n}", group=group): [value(c.tau[n - 1]) for c in curves]
        for n in trials
    }
