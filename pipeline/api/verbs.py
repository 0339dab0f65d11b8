"""`evaluate`, `load_run` and `compare`: the verbs of the command line as functions.

A verb's result is returned instead of printed; notes, warnings and progress go to standard error.
Errors, which the command line prints in one line, are exceptions: `UserError` and the others of
`pipeline.base.errors`. Files of results are read on demand.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bayes_at_n.pipeline.adaptive.settle import run_until
from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import substep, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import set_environment
from bayes_at_n.pipeline.cli.command import run_stages
from bayes_at_n.pipeline.compare import cohort as cohorts_of
from bayes_at_n.pipeline.compare import comparison
from bayes_at_n.pipeline.compare.conclusion import Conclusion, conclude
from bayes_at_n.pipeline.config import analysis, compose
from bayes_at_n.pipeline.config.folder import configured, load_folder
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import Table
from bayes_at_n.pipeline.engines import callable as functions
from bayes_at_n.pipeline.records.trackers import tracked
from bayes_at_n.pipeline.score.stage import scored
from bayes_at_n.pipeline.store import outcomes, provenance, runfolder, shards, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES, KEY, QUESTIONS
from bayes_at_n.pipeline.store.runfolder import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Group = str | Mapping[str, Any] | None  # a choice of a group of settings, or keys of it
_OF_FUNCTIONS = {
    "model": "custom",
    "verifier": "none",
    "engine.name": "callable",
    "engine.batch_size": 16,  # attempts that a kill may lose
    "sampling.seed": None,
    "sampling.logprobs": False,
    "sampling.prompt_logprobs": False,
}
_GRADED = ("outcome", "answer")  # added to the columns of attempts
Read = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]  # reads the named columns


@dataclass(frozen=True)
class Evaluation:
    """A run of M questions with N trials each, and the contents of its folder."""

    run: Run

    @property
    def path(self) -> Path:
        """Return its folder."""
        return self.run.path

    @property
    def settings(self) -> RunConfig:
        """Return all its settings."""
        return self.run.cfg

    @cached_property
    def matrix(self) -> Any:
        """Return outcomes, 1 correct and 0 not, or `scoring.Points`, masked where pending: (M, N).

        All functions of `scoring` take it; `matrix.npz` has ``matrix.filled(-1)``.
        """
        return outcomes.read(self.run).matrix

    @property
    def questions(self) -> "Rows":
        """Return a row per question, in the order of the matrix's rows."""
        assert self.run.questions  # raises UserError where the file is damaged
        path = self.path / "questions.parquet"
        return Rows(
            "questions", QUESTIONS, lambda _: shards.read_whole(path, QUESTIONS).to_batches()
        )

    @property
    def attempts(self) -> "Rows":
        """Return a row per attempt: all columns on disk, and its grade's `outcome` and `answer`."""
        grades = [GRADES.field(name) for name in _GRADED]
        return Rows("attempts", pa.schema([*ATTEMPTS, *grades]), self._attempts)

    @property
    def grades(self) -> "Rows":
        """Return a row per graded attempt, with the verifier's outcomes if it decides."""
        return Rows("grades", GRADES, lambda names: self._grades(names).to_batches())

    def _grades(self, names: Sequence[str]) -> pa.Table:
        return outcomes.graded(self.run, [n for n in names if n not in KEY]).combine_chunks()

    def _attempts(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield attempts in the order of their files, in batches of some hundred."""
        ids, damage = tables.question_ids(self.run), shards.Damage()
        added = [name for name in _GRADED if name in names]
        grades = self._grades(added) if added else None
        known = None if grades is None else tables.encode(grades, ids)
        own = [name for name in names if name not in _GRADED]
        for batch in shards.batches(
            self.run.attempts, ATTEMPTS, dict.fromkeys([*KEY, *own]), damage
        ):
            parts = {name: batch[name] for name in own}
            if known is not None:
                parts |= tables.in_order(grades, known, added, tables.encode(batch, ids))
            yield pa.record_batch(parts)
        if damage.lines:
            warn(f"{self.run.path}: attempts: {damage}; they do not count")

    def scores(self, **settings: Any) -> dict[str, Any]:
        """Compute the contents of `scores.json` without writing it.

        `settings`: of the command line, such as ``metrics=["pass@8"]``. Raises UserError: nothing
        is graded.
        """
        with substep():
            return scored(Run(load_folder(self.path, overrides(settings), "score")))[0]

    def __repr__(self) -> str:
        trials = self.run.cfg.sampling.trials
        return f"{self.path}: {len(self.run.questions)} questions, {trials} trials"


class Rows:
    """Rows of a table of a run, read from its files on demand.

    ``len(rows)`` counts them, iteration yields dicts. Libraries that accept Arrow streams accept
    it, as in ``polars.from_arrow(rows)``.
    """

    def __init__(self, name: str, schema: pa.Schema, read: Read) -> None:
        self.name, self._schema, self._read = name, schema, read

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows as Arrow record batches, with all or the named columns."""
        schema = self.schema(columns)
        for batch in self._read(schema.names):
            yield batch.select(schema.names)

    def schema(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """Return names and types of columns. Raises UserError: an unknown name."""
        known = self._schema.names
        if isinstance(columns, str):
            raise UserError(f"columns={columns!r}: pass a list, [{columns!r}]")
        for name in columns or ():
            if name not in known:
                raise UserError(f"{name}: not a column of {self.name}: {', '.join(known)}")
        return pa.schema([self._schema.field(name) for name in columns or known])

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows as an Arrow table, with all or the named columns."""
        return pa.Table.from_batches(self.batches(columns), self.schema(columns))

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """Return all rows as a data frame, with all or the named columns."""
        return self.to_arrow(columns).to_pandas()

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self.batches(["question_id"]))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.batches():
            yield from batch.to_pylist()

    def __repr__(self) -> str:
        return f"{self.name}: {', '.join(self._schema.names)}"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self.schema(), self.batches())
        return reader.__arrow_c_stream__(requested_schema)


@dataclass(frozen=True)
class Comparison:
    """Models on the questions that they share."""

    cfg: analysis.AnalysisConfig
    cohort: cohorts_of.Cohort  # its `matrix()` is (L, M, N), masked where pending

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Return the tables of `compare` by name, each with `.to_pandas()`."""
        return comparison.tables_of(self.cohort, self.cfg)

    @property
    def leaderboard(self) -> Table:
        """Return the table with a row per model, best first."""
        return self.tables["leaderboard"]

    @cached_property
    def conclusion(self) -> Conclusion:
        """Return which model is best and whether that is settled; `.sentence()` states it."""
        return conclude(self.cohort, self.cfg)

    def figures(self) -> dict[str, "Figure"]:
        """Return matplotlib figures: the leaderboard as a forest plot."""
        return comparison.figures_of(self.cohort, self.cfg, self.tables)

    def __repr__(self) -> str:
        return self.conclusion.sentence()


def evaluate(
    model: Group | functions.Function = None,
    dataset: Group | Sequence[Mapping[str, Any]] = None,
    name: str | None = None,
    *,
    trials: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    max_tokens: int | None = None,
    sampling: Group = None,
    prompt: Group = None,
    engine: Group = None,
    verifier: Group = None,
    rubric: str | Sequence[str] | None = None,
    tag: str | None = None,
    run_dir: str | Path | None = None,
    until: str | None = None,
    **settings: Any,
) -> Evaluation:
    """Complete a run, as the verb `run` does, and return it.

    Args:
        model: a name of `configs/model/`; keys of its settings (``{"id": FOLDER_OR_HUB_ID}``); or a
            function that takes a list of prompts and returns a list of as many texts.
        dataset: a name of `configs/dataset/`; keys of its settings (``{"path": FILE}``); or a list
            of questions, each a dict with `problem`, `answer` and perhaps `id`. With settings of
            their own: ``{"name": "sums", "rows": QUESTIONS, "answer": "exact"}``.
        name: the model's name in tables and of its folder. A function needs one. As its code is
            not compared, each function should have its own name.
        trials, temperature, top_p, max_tokens: of the sampling protocol.
        sampling, prompt, engine, verifier: a name of that folder of `configs/`, or keys of its
            settings (``sampling={"seed": 7}``, ``verifier="none"``).
        rubric: names of `configs/rubric/`, or files.
        tag, run_dir: the run's folder.
        until: sample until this is decided, such as "width:0.02".
        settings: any other setting of the command line, by its full or short name.

        None: the setting's default.

    Raises UserError, Interrupted, DamagedData: as the command line; an exception of a function is
    the cause of the one raised.
    """
    named = {
        **{"sampling": sampling, "prompt": prompt, "engine": engine, "verifier": verifier},
        **{"sampling.trials": trials, "sampling.temperature": temperature},
        **{"sampling.top_p": top_p, "sampling.max_tokens": max_tokens},
        **{"rubric": rubric, "tag": tag, "run_dir": run_dir},
    }
    settings |= {key: value for key, value in named.items() if value is not None}
    set_environment()
    function = model if callable(model) else None
    if until is not None and function is not None:
        raise UserError(f"until={until}: samples in other processes, which lack the function")
    with functions.registered(function), substep(), _no_event_loop():
        chosen = of_run(model, dataset, name, settings)
        cfg = configured(chosen)
        if until is None:
            with tracked(Run(cfg)):
                run_stages(Run(cfg))
        elif status := run_until([*chosen, f"until={until}"]):
            raise UserError(f"{cfg.run_dir}: exit status {status}; see the messages above")
    return Evaluation(Run(cfg)) if until is None else load_run(cfg.run_dir)


def load_run(folder: str | Path) -> Evaluation:
    """Open the run in a folder with its last settings.

    Raises UserError: a file, no run, or a damaged one.

    >>> load_run("no/folder")
    Traceback (most recent call last):
    bayes_at_n.pipeline.base.errors.UserError: no/folder is not a run folder: it has no config.yaml
    """
    path = Path(folder).expanduser()
    if path.is_file():
        what = "is a file; load_run takes the folder of a run, as in runs/DATASET/MODEL"
        raise UserError(f"{folder} {what}; `import` makes one of records")
    return Evaluation(runfolder.open_run(path))


def compare(runs: Sequence[Evaluation | str | Path], **settings: Any) -> Comparison:
    """Compare runs on the same questions, as the verb `compare` does, without writing files.

    Runs on several datasets are compared on all their questions together. `settings`: as on the
    command line, such as ``metrics=["pass@8"]``. Raises UserError: nothing that can be compared.
    """
    if isinstance(runs, str | Path | Evaluation):
        raise UserError(f"compare: {runs} is not a list; pass a list of runs or their folders")
    cfg = analysis.load(overrides(settings))
    cfg.folders = [str(run.path if isinstance(run, Evaluation) else run) for run in runs]
    if not cfg.folders:
        raise UserError("compare: no runs; pass a list of runs or their folders")
    cohorts = cohorts_of.load(cfg)
    return Comparison(cfg, cohorts[0] if len(cohorts) == 1 else cohorts_of.pooled(cohorts))


@contextlib.contextmanager
def _no_event_loop() -> Iterator[None]:
    """Allow event loops although one is running in this thread, as in notebooks."""
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)


def of_run(model: Any, dataset: Any, name: str | None, others: Mapping[str, Any]) -> list[str]:
    """Return the overrides of a run; write questions that are passed as rows to a file.

    For the arguments see `evaluate`. Raises UserError: a function without a
    name, or an invalid question or value.
    """
    settings: dict[str, Any] = {}
    if callable(model):
        if name is None:
            raise UserError("name: no value; a model that is a function needs name=NAME")
        settings |= {**_OF_FUNCTIONS, "model.id": functions.name_of(model)}
    elif model is not None:
        settings |= _of_group("model", model, "id", "custom")
    if name is not None:
        settings["model.name"] = name
    rows = None if isinstance(dataset, str | Mapping) else dataset
    if rows is None and dataset is not None:
        settings |= _of_group("dataset", dataset, "path", "jsonl")
        rows = settings.pop("dataset.rows", None)
    settings |= others
    if rows is None:
        return overrides(settings)
    lines = _json_lines(rows)
    settings = {"dataset": "jsonl", "dataset.path": "questions.jsonl"} | settings
    settings.setdefault("dataset.name", "questions")
    if not any("id" in row for row in rows):
        settings.setdefault("dataset.fields.id", None)  # number them
    beside = Path(configured(overrides(settings)).run_dir).expanduser().parent
    file = beside / "_questions" / f"{provenance.short_hash(lines)}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(file, lines)
    return overrides(settings | {"dataset.path": file})


def overrides(settings: Mapping[str, Any], group: str = "") -> list[str]:
    """Return settings as KEY=VALUE, mappings key by key. Raises UserError: an unsupported type.

    >>> overrides({"model": "qwen3-4b", "sampling": {"trials": 8}, "stop": ["a,b"], "tag": None})
    ['model=qwen3-4b', 'sampling.trials=8', "stop=['a,b']", 'tag=null']
    """
    texts = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            texts += overrides(value, f"{group}{key}.")
        elif not group and isinstance(value, str) and key in compose.GROUPS:
            texts.append(f"{key}={value}")
        else:
            texts.append(f"{group}{key}={_value(key, value)}")
    return texts


def _value(key: str, value: Any) -> str:
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str | Path):
        return compose.quoted(str(value))
    if isinstance(value, list | tuple):
        return f"[{','.join(_value(key, one) for one in value)}]"
    if value is None or isinstance(value, bool | int | float):
        return str(value) if isinstance(value, float) else json.dumps(value)
    raise UserError(f"{key}: {type(value).__name__} is not a setting; pass a text or a number")


def _of_group(group: str, value: Any, own: str, choice: str) -> dict[str, Any]:
    """Return a choice by name, or a group's keys, on top of `choice` if `own` is among them."""
    if isinstance(value, str):
        return {group: value}
    if not isinstance(value, Mapping):
        raise UserError(f"{group}: {type(value).__name__} is neither a name nor a dict of settings")
    keys = {f"{group}.{key}": of_key for key, of_key in value.items()}
    return {group: choice, **keys} if own in value else keys


def _json_lines(rows: Any) -> str:
    """Return questions as JSON Lines. Raises UserError: not a list of mappings of JSON values."""
    if not isinstance(rows, Sequence):
        raise UserError(
            f"dataset: {type(rows).__name__} is not a name, a dict of settings ({{'path': FILE}})"
            " or a list of dicts; for a data frame pass .to_dict('records')"
        )
    lines = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise UserError(f"dataset: question {number} is {type(row).__name__}, expected a dict")
        try:
            lines.append(json.dumps(dict(row), default=_of_numpy))
        except (TypeError, ValueError) as error:
            raise UserError(f"dataset: question {number}: {error}") from error
    return "".join(f"{line}\n" for line in lines)


def _of_numpy(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a JSON value")
