"""What the paper prints, and which of our runs are its models and tasks: `configs/paper/`."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import yaml  # type: ignore[import-untyped]

from pipeline.config.compose import CONFIGS

TASKS = {"aime24": "AIME'24", "aime25": "AIME'25", "hmmt25": "HMMT'25", "brumo25": "BrUMO'25"}
"""The paper's four tasks, by the names of our data sets."""
ELEVEN = tuple(range(1, 12))
"""Numbers in Table 6 of the models of version 000."""
TWENTY = tuple(range(1, 21))
Relation = Literal["near", "at_least", "at_most"]


class Printed(NamedTuple):
    """One number of the paper."""

    id: str
    value: float
    version: str  # 000, 001 or both
    where: str
    tolerance: float
    reason: str
    why: str
    relation: Relation
    needs_records: bool
    by_construction: bool = False  # ours cannot be another number

    @property
    def study(self) -> str:
        """The study that makes it, one of `settings.STUDIES`."""
        first = self.id.split(".")[0]
        return "convergence" if first == "subset" else first

    def agrees(self, ours: float) -> bool:
        """Whether a number of ours is what is printed, within the tolerance.

        >>> near = Printed("a", 1.14, "000", "Fig. 3", 0.01, "rounded", "", "near", False)
        >>> near.agrees(1.15), near.agrees(1.16), near._replace(relation="at_least").agrees(9)
        (True, False, True)
        """
        slack = self.tolerance * (1 + 1e-9) + 1e-12
        if self.relation == "at_least":
            return ours >= self.value - slack
        if self.relation == "at_most":
            return ours <= self.value + slack
        return abs(ours - self.value) <= slack


class Subset(NamedTuple):
    """One row of Tables 8 to 10: models by their number in Table 6, and what is printed."""

    row: int
    models: tuple[int, ...]
    printed: Mapping[str, float]  # mean convergence@n by task

    def id(self, task: str) -> str:
        """The id of one of its numbers."""
        return f"subset.{len(self.models)}.{self.row}.{task}"


@functools.cache
def printed() -> tuple[Printed, ...]:
    """Every printed number, those of Tables 8 to 10 included."""
    return (*(number for group in _read("printed") for number in _expand(group)), *_of_subsets())


def values(ids: Sequence[str]) -> list[float]:
    """The printed numbers of some ids."""
    known = {number.id: number.value for number in printed()}
    return [known[name] for name in ids]


@functools.cache
def rows_001() -> tuple[dict[int, str], list[str]]:
    """Rows of version 001's Table 2: by model where the name is established, and the others.

    >>> named, others = rows_001()
    >>> named[7], others[:2], len(named) + len(others)
    ('gpt-oss-high', ['row5', 'row6'], 20)
    """
    start = "ranks.001."
    ids = [n.id.removeprefix(start) for n in printed() if n.id.startswith(start)]
    rows = dict.fromkeys(one.rpartition(".aime25.ci")[0] for one in ids if ".aime25.ci" in one)
    named = {number: name for number, name in short_names().items() if name in rows}
    return named, [row for row in rows if row not in named.values()]


def table_3() -> dict[str, Any]:
    """What the paper says that each method gives, and where this library has it."""
    table: dict[str, Any] = _read("table3")
    return table


@functools.cache
def short_names() -> dict[int, str]:
    """The short names of Table 6 by number."""
    return {number: names[0] for number, names in _read("models").items()}


@functools.cache
def subsets() -> tuple[Subset, ...]:
    """The 90 subsets of Tables 8 to 10."""
    content = _read("subsets")
    return tuple(
        Subset(row, tuple(models), dict(zip(content["tasks"], values, strict=True)))
        for of_size in content["subsets"].values()
        for row, (models, *values) in enumerate(of_size, 1)
    )


def task_of(dataset: str) -> str | None:
    """The paper's task that a data set is, by its name; None for another.

    >>> [task_of(name) for name in ("AIME_2024", "hmmt_feb_2025", "hmmt25_feb", "gsm8k")]
    ['aime24', 'hmmt25', 'hmmt25', None]
    """
    shape = re.fullmatch(r"(aime|hmmt|brumo)(?:feb)?(?:20)?(2\d)(?:feb)?", _plain(dataset))
    task = "".join(shape.groups()) if shape else ""
    return task if task in TASKS else None


def numbers_of(names: Sequence[Sequence[str]]) -> list[int | None]:
    """The numbers in Table 6 of models, each known under several names; None for others.

    A model that is there twice (two runs) counts once: the later one gets None.

    >>> numbers_of([["limo-v2"], ["my-model", "Qwen/Qwen3-4B-Thinking-2507"], ["tiny"]])
    [2, 19, None]
    """
    known = {_plain(name): n for n, all_names in _read("models").items() for name in all_names}
    numbers: list[int | None] = []
    for candidates in names:
        plain = [_plain(name.rpartition("/")[2]) for name in candidates]
        number = next((known[name] for name in plain if name in known), None)
        numbers.append(None if number in numbers else number)
    return numbers


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@functools.cache
def _read(name: str) -> Any:
    return yaml.safe_load((CONFIGS / "paper" / f"{name}.yaml").read_text(encoding="utf-8"))


def _expand(group: Mapping[str, Any]) -> Iterator[Printed]:
    """The numbers of one group of printed.yaml: rows of columns, columns, or values by id."""
    columns, forced = group.get("columns", ()), group.get("by_construction", ())
    if "rows" in group:
        values = {
            f"{group['prefix']}.{row}.{column}": (value, column in forced)
            for row, values in group["rows"].items()
            for column, value in zip(columns, values, strict=True)
        }
    elif columns:
        pairs = zip(columns, group["values"], strict=True)
        values = {f"{group['prefix']}.{column}": (value, False) for column, value in pairs}
    else:
        values = {key: (value, False) for key, value in group["values"].items()}
    for key, (value, by_construction) in values.items():
        yield Printed(
            key,
            float(value),
            group["version"],
            group["where"],
            float(group["tolerance"]),
            group["reason"],
            group.get("why", ""),
            group.get("relation", "near"),
            group.get("needs_records", False),
            by_construction,
        )


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
