"""Read outcomes, token counts and lengths of a run, for scoring, comparison and status."""

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
UNDECIDED = (UNPARSABLE, TIMEOUT, ERROR)  # the grader failed; 0 in every score
PENDING = -1  # a trial without a grade
MILLION = 1e6  # tokens that a price is for
BOXES = ("boxed", "no_box", "unclosed", "truncated")


class Outcomes(NamedTuple):
    """The graded attempts of a run: M questions, N trials of each."""

    question_ids: list[str]  # M
    hashes: list[str]  # M, of problem and gold answer
    codes: Codes  # (M, N) indices in OUTCOMES, or PENDING
    boxes: Codes  # (M, N) indices in BOXES; -1: not graded, or not known
    ruled: Codes  # (M, N) like `codes`, by the rule grader alone
    judged: npt.NDArray[np.bool_] | None = None  # (M, N) whether the verifier decides; None: never
    points: Codes | None = None  # (M, N) of a judge, or PENDING; None: outcomes are correct or not
    weights: Sequence[float] | None = None  # score of 0, 1, ... points

    @property
    def matrix(self) -> Any:
        """Return what is scored: 1 correct and 0 not, or `scoring.Points`, masked if pending."""
        return scored(self.codes, self.points, self.weights)

    @property
    def truncated(self) -> Codes:
        """Return 1 for attempts cut off by a token limit, 0 for others, -1 if unknown: (M, N)."""
        cut = (self.boxes == BOXES.index("truncated")).astype(np.int8)
        return np.where(self.boxes < 0, np.int8(-1), cut)

    def deciders(self) -> dict[str, int]:
        """Return how many outcomes each grader decided; empty without a verifier."""
        if self.judged is None:
            return {}
        judged, right, decided = self.judged, self.codes == CORRECT, self.codes != PENDING
        kinds = {"rule": ~judged & decided, "verifier": judged & decided}
        kinds["accepted"] = right & (self.ruled != CORRECT)  # by the verifier, not by the rules
        kinds["rejected"] = judged & decided & ~right & (self.ruled == CORRECT)
        kinds["pending"] = judged & ~decided
        return {kind: int(mask.sum()) for kind, mask in kinds.items()}

    def positions(self) -> dict[str, int]:
        """Return the index of each question by its hash, numbered if that occurs again.

        Raises UserError: a question has no hash.

        >>> none = np.empty((3, 0), np.int8)
        >>> Outcomes(["a", "b", "c"], ["x", "y", "x"], none, none, none).positions()
        {'x': 0, 'y': 1, 'x 2': 2}
        """
        positions, times = dict[str, int](), Counter[str]()
        for i, digest in enumerate(self.hashes):
            if not digest:
                raise UserError(f"question {i + 1} has no hash; prepare the run again")
            times[digest] += 1
            positions[f"{digest} {times[digest]}" if times[digest] > 1 else digest] = i
        return positions


class Usage(NamedTuple):
    """Tokens and cost of a run's attempts; imported records may lack them."""

    attempts: int
    prompt_tokens: int  # sums over the attempts with known counts
    completion_tokens: int
    prompts_known: int  # attempts with a known prompt length
    completions_known: int
    spent: sessions.Totals  # wall seconds, GPU seconds and tokens of all sessions
    price: float | None  # see `price`; None, too, if an attempt's tokens are not known

    @property
    def prompt_mean(self) -> float | None:  # tokens per attempt; None if not known
        return self.prompt_tokens / self.prompts_known if self.prompts_known else None

    @property
    def completion_mean(self) -> float | None:
        return self.completion_tokens / self.completions_known if self.completions_known else None


class Lengths(NamedTuple):
    """Lengths of a run's attempts: M questions, N trials of each."""

    tokens: npt.NDArray[np.int64]  # (M, N) of the completion; -1: not known, or no attempt
    cut: npt.NDArray[np.bool_]  # (M, N) cut off by a token limit
    limits: npt.NDArray[np.int64]  # (M,) token limit of each question: max_tokens, or the context
    known: float  # the largest max_tokens whose outcomes these attempts determine; inf: none cut
    guessed: int  # attempts below their limit without a finish reason, taken as complete


def read(run: Run, quiet: bool = False, table: pa.Table | None = None) -> Outcomes:
    """Read all outcomes of a run; damaged ones are pending, with a warning unless `quiet`.

    `table`: the result of `graded.graded`, by default read here. Raises UserError: the run is not
    prepared; unless `quiet`, see `graded.graded`.
    """
    shape, ids = (len(run.questions), run.cfg.sampling.trials), rowkeys.question_ids(run)
    table = graded.graded(run, quiet=quiet) if table is None else table
    codes, decided = list[Codes](), None
    for column, words in (("outcome", OUTCOMES), ("box", BOXES), ("ruled", OUTCOMES)):
        values = pc.index_in(table[column], pa.array(words))  # null: PENDING, -1
        values = pc.fill_null(values, PENDING).to_numpy().astype(np.int8)
        codes.append(rowkeys.placed(table, ids, values, shape, PENDING))
    if run.cfg.dataset.judge:
        decided = rowkeys.placed(table, ids, table["judged"].to_numpy() == 1, shape, False)
    points, weights = None, run.cfg.point_weights
    if weights is not None:
        of_rows = pc.fill_null(table["points"], PENDING).to_numpy().astype(np.int8)
        points = rowkeys.placed(table, ids, of_rows, shape, PENDING)
    hashes, (outcome, boxes, ruled) = [q["question_hash"] for q in run.questions], codes
    return Outcomes(ids.to_pylist(), hashes, outcome, boxes, ruled, decided, points, weights)


def deciders_line(run: Run, outcomes: Outcomes) -> str:
    """Return a line on who decided the outcomes; empty if the rule grader decided all."""
    if not (n := outcomes.deciders()):
        return ""
    pending = f"; {n['pending']} pending" * bool(n["pending"])
    return (
        f"decided by the rule grader: {n['rule']}, by verifier {run.cfg.verifier.name}:"
        f" {n['verifier']} (judge={run.cfg.dataset.judge}), which accepts {n['accepted']} that the"
        f" rule grader does not, and rejects {n['rejected']} that it accepts{pending}"
    )


def clusters(run: Run, question_ids: Sequence[str] | None = None) -> list[str]:
    """Return a label for each question, of these or all: the same for those drawn together."""
    by_id = {row["question_id"]: row["cluster"] for row in run.questions}
    ids = [*by_id] if question_ids is None else question_ids
    return [f"question {name}" if by_id[name] is None else f"of {by_id[name]}" for name in ids]


def usage(run: Run, question_ids: Sequence[str] | None = None) -> Usage:
    """Return the tokens of these questions' attempts (by default all) and the run's sessions."""
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

    An attempt cut off at its question's limit determines outcomes up to the run's max_tokens, one
    cut off earlier only up to its own length. One stopped by the repetition detector is complete.
    """
    rows = {q["question_id"]: q["max_tokens"] for q in run.questions}
    ids = pa.array(rows if question_ids is None else question_ids, pa.string())
    cap, shape = run.cfg.sampling.max_tokens, (len(ids), run.cfg.sampling.trials)
    limits = np.array([cap if (n := rows[qid]) is None else n for qid in ids.to_pylist()], np.int64)
    table = rowkeys.streamed(run, "attempts", ["completion_tokens", "finish_reason"])
    reasons, n = table["finish_reason"], table["completion_tokens"].fill_null(-1).to_numpy()
    limited = pc.equal(reasons, "length").fill_null(False)
    tokens = rowkeys.placed(table, ids, n.astype(np.int64), shape, -1)
    cut, unknown = (
        rowkeys.placed(table, ids, mask.to_numpy(), shape, False)
        for mask in (limited, reasons.is_null())
    )
    full = tokens >= limits[:, None]
    cut |= unknown & full
    ends = np.where(full, np.maximum(tokens, cap), tokens)[cut]
    known = float(ends.min()) if ends.size else np.inf
    return Lengths(tokens, cut, limits, known, int((unknown & ~cut & (tokens >= 0)).sum()))


def capped(matrix: Any, tokens: npt.ArrayLike, cap: int) -> Any:
    """Return `scored` outcomes under a smaller token limit: longer attempts count 0.

    >>> capped(correct([CORRECT, CORRECT, WRONG, PENDING]), [8, 9, 20, -1], 8).tolist()
    [1, 0, 0, None]
    """
    made = matrix.copy()
    made[~np.ma.getmaskarray(matrix) & (np.asarray(tokens) > cap)] = 0  # type: ignore[no-untyped-call]
    return made


def price(engine: EngineConfig, prompt_tokens: float, completion_tokens: float) -> float | None:
    """Return what tokens cost at the engine's prices per million; None if neither price is set.

    `prompt_tokens` counts a prompt once per attempt. If one price is not set, it is 0.

    >>> price(EngineConfig("vllm", price_in=0.5, price_out=2.0), 4e6, 1e6)
    4.0
    """
    prices = engine.price_in, engine.price_out
    paid = prompt_tokens * (prices[0] or 0.0) + completion_tokens * (prices[1] or 0.0)
    return None if prices == (None, None) else paid / MILLION


def words(codes: npt.ArrayLike) -> npt.NDArray[np.str_]:
    """Return codes as words of OUTCOMES or "pending", of the same shape."""
    return np.array([*OUTCOMES, "pending"])[np.asarray(codes)]  # type: ignore[no-any-return]


def correct(codes: npt.ArrayLike) -> Any:
    """Return 1 for correct, 0 for other outcomes, masked if pending: int8, of the same shape.

    >>> correct([[0, 4, PENDING]]).tolist()
    [[1, 0, None]]
    """
    codes = np.asarray(codes)
    return np.ma.masked_where(codes == PENDING, (codes == CORRECT).astype(np.int8))  # type: ignore[no-untyped-call]


def scored(codes: Codes, points: Codes | None, weights: Sequence[float] | None) -> Any:
    """Return `correct(codes)`, or points with their weights, masked where pending.

    >>> found = scored(np.array([[0, 1, 1]], np.int8), np.array([[2, 1, -1]], np.int8), [0, 0.5, 1])
    >>> found.tolist(), found.weights.tolist()
    ([[2, 1, None]], [0.0, 0.5, 1.0])
    """
    if points is None or weights is None:
        return correct(codes)
    from bayes_at_n.scoring.numerics.inputs import Points  # not needed without points

    return Points(np.ma.masked_equal(points, PENDING), weights)  # type: ignore[no-untyped-call]
