"""The numbers, models and tasks printed in the paper, from `configs/paper/`."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import yaml  # type: ignore[import-untyped]

from bayes_at_n.pipeline.config.compose import CONFIGS

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
