"""What the verbs return: a run, its attempts, models side by side. Files are read on demand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bayes_at_n.pipeline.api import given
from bayes_at_n.pipeline.base.console import inside, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cohorts import compare
from bayes_at_n.pipeline.cohorts.cohort import Cohort
from bayes_at_n.pipeline.cohorts.verdict import Verdict, verdict
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import Table
from bayes_at_n.pipeline.score.stage import scored
from bayes_at_n.pipeline.store import graded, outcomes, parquet, rowkeys, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES, QUESTIONS
from bayes_at_n.pipeline.store.runfolder import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GRADED = ("outcome", "answer")  # beside the columns of attempts


@dataclass(frozen=True)
class Evaluation:
    """A run of M questions and N trials of each, and what its folder holds."""

    run: Run

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.run.path

    @property
    def settings(self) -> RunConfig:
        """All its settings."""
        return self.run.cfg

    @cached_property
    def matrix(self) -> Any:
        """1 correct, 0 not, masked where owed: int8, shape (M, N), for all functions of `scoring`.

        ``matrix.filled(-1)`` is what `matrix.npz` holds.
        """
        return outcomes.correct(outcomes.read(self.run).codes)

    @property
    def questions(self) -> pa.Table:
        """One row a question, in the order of the matrix's rows."""
        assert self.run.questions is not None  # it says what is wrong with them
        return parquet.whole(self.path / "questions.parquet", QUESTIONS)

    @property
    def attempts(self) -> "Attempts":
        """One row an attempt: nothing is read before it is asked for."""
        return Attempts(self.run)

    def scores(self, **settings: Any) -> dict[str, Any]:
        """What `score` would save in `scores.json`, computed now; nothing is written.

        `settings`: of the command line, such as ``metrics=["pass@8"]``. Raises UserError: nothing
        is graded.
        """
        with inside():
            return scored(Run(load_folder(self.path, given.texts(settings))))[0]

    def __repr__(self) -> str:
        trials = self.run.cfg.sampling.trials
        return f"{self.path}: {len(self.run.questions)} questions, {trials} trials"


@dataclass(frozen=True)
class Attempts:
    """The attempts of a run, as Arrow record batches that are read when they are asked for.

    All columns of the table on disk (`pipeline/store/columns.py`), and of its grade `outcome` and
    `answer`, null where it has none. Any library that takes Arrow streams takes this.
    """

    run: Run

    def __repr__(self) -> str:
        return f"Attempts({self.run.path})"

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Attempts in the order of files, some hundred at a time; `columns`: only these."""
        schema = self.schema(columns)
        ids, damage = rowkeys.question_ids(self.run), parquet.Damage()
        own = [name for name in schema.names if name not in _GRADED]
        grades = graded.graded(self.run, ["answer"]).combine_chunks()
        known = rowkeys.encode(grades, ids)
        read = dict.fromkeys(["question_id", "trial", *own])
        for batch in shards.batches(self.run.attempts, ATTEMPTS, read, damage):
            parts = rowkeys.in_order(grades, known, _GRADED, rowkeys.encode(batch, ids))
            parts |= {name: batch[name] for name in own}
            yield pa.record_batch([parts[name] for name in schema.names], schema=schema)
        if damage.lines:
            warn(f"{self.run.path}: attempts: {damage}; they do not count")

    def schema(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """Names and types. Raises UserError: a name that is none."""
        fields = {f.name: f for f in [*ATTEMPTS, *(GRADES.field(name) for name in _GRADED)]}
        if isinstance(columns, str):
            raise UserError(f"columns={columns!r}: give a list, [{columns!r}]")
        for name in columns or ():
            if name not in fields:
                raise UserError(f"{name}: no column of attempts; known: {', '.join(fields)}")
        return pa.schema([fields[name] for name in columns or fields])

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All of them in memory, or some columns."""
        return pa.Table.from_batches(self.batches(columns), self.schema(columns))

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """All of them as a data frame, or some columns; tokens and log-probs are most of them."""
        return self.to_arrow(columns).to_pandas()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self.schema(), self.batches())
        return reader.__arrow_c_stream__(requested_schema)


@dataclass(frozen=True)
class Comparison:
    """Models on the questions that they share."""

    cfg: AnalysisConfig
    cohort: Cohort  # its `matrix()` is (L, M, N), masked where owed

    @cached_property
    def tables(self) -> dict[str, Table]:
        """The tables of `compare` by name, each with `.to_pandas()`."""
        return compare.tables_of(self.cohort, self.cfg)

    @property
    def leaderboard(self) -> Table:
        """A row a model, best first."""
        return self.tables["leaderboard"]

    @cached_property
    def verdict(self) -> Verdict:
        """Which is best, and whether that is settled; `.sentence()` says it."""
        return verdict(self.cohort, self.cfg)

    def figures(self) -> dict[str, "Figure"]:
        """The leaderboard as a forest plot, and models by questions: figures of matplotlib."""
        return compare.figures_of(self.cohort, self.cfg, self.tables)

    def __repr__(self) -> str:
        return self.verdict.sentence()
