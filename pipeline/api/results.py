"""Results of the verbs: a run with its tables, and a comparison. Files are read on demand."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bayes_at_n.pipeline.api.overrides import overrides
from bayes_at_n.pipeline.base.console import substep, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import comparison
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.conclusion import Conclusion, conclude
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import Table
from bayes_at_n.pipeline.score.stage import scored
from bayes_at_n.pipeline.store import graded, outcomes, parquet, rowkeys, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES, KEY, QUESTIONS
from bayes_at_n.pipeline.store.runfolder import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
            "questions", QUESTIONS, lambda _: parquet.read_whole(path, QUESTIONS).to_batches()
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
        return graded.graded(self.run, [n for n in names if n not in KEY]).combine_chunks()

    def _attempts(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield attempts in the order of their files, in batches of some hundred."""
        ids, damage = rowkeys.question_ids(self.run), parquet.Damage()
        added = [name for name in _GRADED if name in names]
        grades = self._grades(added) if added else None
        known = None if grades is None else rowkeys.encode(grades, ids)
        own = [name for name in names if name not in _GRADED]
        for batch in shards.batches(
            self.run.attempts, ATTEMPTS, dict.fromkeys([*KEY, *own]), damage
        ):
            parts = {name: batch[name] for name in own}
            if known is not None:
                parts |= rowkeys.in_order(grades, known, added, rowkeys.encode(batch, ids))
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

    cfg: AnalysisConfig
    cohort: Cohort  # its `matrix()` is (L, M, N), masked where pending

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
