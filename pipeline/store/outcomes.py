"""Read outcomes, tokens and times of a run, once for all who score, compare or watch it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.resources import EngineConfig
from bayes_at_n.pipeline.store import graded, rowkeys, sessions
from bayes_at_n.pipeline.store.runfolder import Run

Codes = npt.NDArray[np.int8]

OUTCOMES = ("correct", "wrong", "no_answer", "unparsable", "timeout", "error")
CORRECT, WRONG, NO_ANSWER, UNPARSABLE, TIMEOUT, ERROR = range(len(OUTCOMES))
UNDECIDED = (UNPARSABLE, TIMEOUT, ERROR)  # the grader could not say; 0 in every score
PENDING = -1  # a trial without a grade
MILLION = 1e6  # tokens that prices are for
BOXES = ("boxed", "no_box", "unclosed", "truncated")


class Outcomes(NamedTuple):
    """The graded attempts of a run: M questions, N trials of each."""

    question_ids: list[str]  # M
    hashes: list[str]  # M, of problem and gold answer
    codes: Codes  # (M, N) positions in OUTCOMES, or PENDING
    boxes: Codes  # (M, N) positions in BOXES; -1 where there is no grade, or it does not say
    ruled: Codes  # (M, N) as `codes`, by the rule grader alone
    judged: npt.NDArray[np.bool_] | None = None  # (M, N) the verifier decides; None: none of them

    @property
    def truncated(self) -> Codes:
        """1 cut off by its token limit, 0 not, -1 not known: (M, N) int8."""
        cut = (self.boxes == BOXES.index("truncated")).astype(np.int8)
        return np.where(self.boxes < 0, np.int8(-1), cut)

    def deciders(self) -> dict[str, int]:
        """Count the outcomes that each grader decided; empty where no verifier does."""
        if self.judged is None:
            return {}
        judged, right, known = self.judged, self.codes == CORRECT, self.codes != PENDING
        kinds = {"rule": ~judged & known, "verifier": judged & known}
        kinds["accepted"] = right & (self.ruled != CORRECT)  # by the verifier, not by the rules
        kinds["rejected"] = judged & known & ~right & (self.ruled == CORRECT)
        kinds["pending"] = judged & ~known
        return {kind: int(which.sum()) for kind, which in kinds.items()}

    def positions(self) -> dict[str, int]:
        """Return the place of each question by its hash, numbered where it occurs again.

        Raises UserError: a question has no hash.

        >>> none = np.empty((3, 0), np.int8)
        >>> Outcomes(["a", "b", "c"], ["x", "y", "x"], none, none, none).positions()
        {'x': 0, 'y': 1, 'x 2': 2}
        """
        positions, times = dict[str, int](), Counter[str]()
        for i, mark in enumerate(self.hashes):
            if not mark:
                raise UserError(f"question {i + 1} has no hash; prepare the run again")
            times[mark] += 1
            positions[f"{mark} {times[mark]}" if times[mark] > 1 else mark] = i
        return positions


class Usage(NamedTuple):
    """What the attempts of a run took; imported records may not say."""

    attempts: int
    prompt_tokens: int  # sums over the attempts that say it
    completion_tokens: int
    prompts_known: int  # attempts that say how long their prompt was
    completions_known: int
    spent: sessions.Totals  # wall seconds, GPU-seconds and tokens of all its sessions
    price: float | None  # see `price`; None, too, where some attempt does not say its tokens

    @property
    def prompt_mean(self) -> float | None:  # tokens an attempt; None where no attempt says it
        return self.prompt_tokens / self.prompts_known if self.prompts_known else None

    @property
    def completion_mean(self) -> float | None:
        return self.completion_tokens / self.completions_known if self.completions_known else None


class Lengths(NamedTuple):
    """How long the attempts of a run were: M questions, N trials of each."""

    tokens: npt.NDArray[np.int64]  # (M, N) of the completion; -1 not known, or no attempt
    cut: npt.NDArray[np.bool_]  # (M, N) ran into a limit of tokens
    room: npt.NDArray[np.int64]  # (M,) the limit of each question: what the context left of it
    known: float  # the largest max_tokens whose outcomes these attempts tell; inf: none was cut
    guessed: int  # attempts that do not say how they ended: below their limit, by themselves


def read(run: Run, quiet: bool = False, table: pa.Table | None = None) -> Outcomes:
    """Read all outcomes of a run; damaged ones are pending, with a warning unless `quiet`.

    `table`: what `graded.graded` returns, read here by default. Raises UserError: the run is not
    prepared; unless `quiet`, as `graded.graded`.
    """
    shape, ids = (len(run.questions), run.cfg.sampling.trials), rowkeys.question_ids(run)
    table = graded.graded(run, quiet=quiet) if table is None else table
    columns = {
        "codes": ("outcome", OUTCOMES),
        "boxes": ("box", BOXES),
        "ruled": ("ruled", OUTCOMES),
    }
    codes, decided = dict[str, Codes](), None
    for name, (column, known) in columns.items():  # null and other words are PENDING, -1
        places = pc.fill_null(pc.index_in(table[column], pa.array(known)), PENDING).to_numpy()
        codes[name] = rowkeys.placed(table, ids, places.astype(np.int8), shape, PENDING)
    if run.cfg.dataset.judge:
        decided = rowkeys.placed(table, ids, table["judged"].to_numpy() == 1, shape, False)
    hashes = [q["question_hash"] for q in run.questions]
    return Outcomes(ids.to_pylist(), hashes, **codes, judged=decided)


def deciders_line(run: Run, found: Outcomes) -> str:
    """Say in a line who decided the outcomes; empty where the rule grader decided all."""
    if not (n := found.deciders()):
        return ""
    pending = f"; {n['pending']} wait for it" * bool(n["pending"])
    return (
        f"decided by the rule grader: {n['rule']}, by verifier {run.cfg.verifier.name}:"
        f" {n['verifier']} (judge={run.cfg.dataset.judge}); of these it accepts {n['accepted']}"
        f" that the rule grader does not, and rejects {n['rejected']} that it accepts{pending}"
    )


def clusters(run: Run, question_ids: Sequence[str] | None = None) -> list[str]:
    """Return a label for each question, of these or all: the same for those drawn together."""
    by_id = {row["question_id"]: row["cluster"] for row in run.questions}
    ids = [*by_id] if question_ids is None else question_ids
    return [f"question {name}" if by_id[name] is None else f"of {by_id[name]}" for name in ids]


def usage(run: Run, question_ids: Sequence[str] | None = None) -> Usage:
    """Sum the tokens of the first trials of these questions, or all, and the run's sessions."""
    ids = rowkeys.question_ids(run) if question_ids is None else pa.array(question_ids, pa.string())
    table = rowkeys.streamed(run, "attempts", ["prompt_tokens", "completion_tokens"])
    counted, _ = rowkeys.cells(rowkeys.encode(table, ids), run.cfg.sampling.trials)
    columns, spent = table.filter(pa.array(counted)).columns[2:], sessions.totals(run)
    sums = [pc.sum(column).as_py() or 0 for column in columns]  # null: nothing known
    known = [pc.count(column).as_py() for column in columns]
    paid = price(run.cfg.engine, *sums) if min(known) == counted.sum() else None
    return Usage(int(counted.sum()), sums[0], sums[1], known[0], known[1], spent, paid)


def lengths(run: Run, question_ids: Sequence[str] | None = None) -> Lengths:
    """Read the lengths of a run's attempts, of these questions or of all.

    An attempt cut off where its question's room ended tells all up to the run's max_tokens, one cut
    off earlier only up to its own length. A text stopped by the detector of repetition has ended.
    """
    rows = {q["question_id"]: q["max_tokens"] for q in run.questions}
    ids = pa.array(rows if question_ids is None else question_ids, pa.string())
    asked, shape = run.cfg.sampling.max_tokens, (len(ids), run.cfg.sampling.trials)
    room = np.array([asked if (n := rows[qid]) is None else n for qid in ids.to_pylist()], np.int64)
    table = rowkeys.streamed(run, "attempts", ["completion_tokens", "finish_reason"])
    ends, n = table["finish_reason"], table["completion_tokens"].fill_null(-1).to_numpy()
    limited = pc.equal(ends, "length").fill_null(False)
    tokens = rowkeys.placed(table, ids, n.astype(np.int64), shape, -1)
    cut, unsaid = (
        rowkeys.placed(table, ids, which.to_numpy(), shape, False)
        for which in (limited, ends.is_null())
    )
    full = tokens >= room[:, None]
    cut |= unsaid & full
    told = np.where(full, np.maximum(tokens, asked), tokens)[cut]
    known = float(told.min()) if told.size else np.inf
    return Lengths(tokens, cut, room, known, int((unsaid & ~cut & (tokens >= 0)).sum()))


def capped(codes: Codes, tokens: npt.ArrayLike, cap: int) -> Codes:
    """Return outcomes under a smaller limit: what is longer has not answered.

    >>> capped(np.array([0, 0, 1, PENDING], np.int8), [8, 9, 20, -1], 8).tolist()
    [0, 2, 2, -1]
    """
    longer = (codes != PENDING) & (np.asarray(tokens) > cap)
    return np.where(longer, np.int8(NO_ANSWER), codes)


def price(engine: EngineConfig, prompt_tokens: float, completion_tokens: float) -> float | None:
    """Return what tokens cost at the engine's prices per million; None where none is set.

    `prompt_tokens` counts a prompt once an attempt. A price that alone is not set is 0.

    >>> price(EngineConfig("vllm", price_in=0.5, price_out=2.0), 4e6, 1e6)
    4.0
    """
    prices = engine.price_in, engine.price_out
    paid = prompt_tokens * (prices[0] or 0.0) + completion_tokens * (prices[1] or 0.0)
    return None if prices == (None, None) else paid / MILLION


def words(codes: npt.ArrayLike) -> npt.NDArray[np.str_]:
    """Decode codes into words of OUTCOMES, "pending" without a grade; of the same shape."""
    return np.array([*OUTCOMES, "pending"])[np.asarray(codes)]  # type: ignore[no-any-return]


def correct(codes: npt.ArrayLike) -> Any:
    """Return 1 for correct, 0 for other outcomes, masked where pending: int8, of the same shape.

    >>> correct([[0, 4, PENDING]]).tolist()
    [[1, 0, None]]
    """
    codes = np.asarray(codes)
    return np.ma.masked_where(codes == PENDING, (codes == CORRECT).astype(np.int8))  # type: ignore[no-untyped-call]
