"""equivalence: whether two ways of sampling a model are the same, by tokens and by accuracy."""

import contextlib
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base.console import Meter, note, plural, results
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.compare import cohort
from bayes_at_n.pipeline.compare.cohort import Cohort, Member
from bayes_at_n.pipeline.compare.differences import unequal
from bayes_at_n.pipeline.config.analysis import EquivalenceConfig
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.display.table import Column, Table, columns
from bayes_at_n.pipeline.prepare import sizing
from bayes_at_n.pipeline.rubrics.signals import bits_per_token
from bayes_at_n.pipeline.store import runfolder, selection, tables
from bayes_at_n.pipeline.store.outcomes import CORRECT, PENDING
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.numerics.inputs import Bools, Floats, Ints
from bayes_at_n.scoring.numerics.results import Summary
from bayes_at_n.scoring.ranking.equivalence import (
    Equivalence,
    equivalence,
    kl_terms,
    paired_trials,
    per_token,
)

_UNKNOWN = -1  # a seed that no record has
_AT_ONCE = 32  # attempts, between two looks at the clock
OUT = "or leave the replay out: replay=0"
# Of a model what may be another one although runs are of the same; the rest is in `differences`.
_MODEL = ("id", "revision", "dtype", "adapter", "context", "engine_args", "system")
# Of an engine what settings say anyway; variables hold names that are new in every process.
_NAMED = ("model", "dtype", "variables")


class Attempts(NamedTuple):
    """The attempts of a run: M questions in the pair's order, T trials of each."""

    lengths: Floats  # (M, T) tokens of the completion; NaN where no record has it
    logprobs: Floats  # (M, T) their mean log-prob, natural; NaN likewise
    seeds: Ints  # (M, T), -1 where there is none
    rows: Ints  # (M, T) the row of `table` that has its tokens; -1: none
    table: pa.Table  # token_ids, logprobs

    def tokens(self, question: int, trial: int) -> npt.NDArray[np.int32]:
        """Return the tokens of one attempt that has some."""
        found = self.table["token_ids"][self.rows[question, trial]].values
        return np.asarray(found, np.int32)


class Pair(NamedTuple):
    """Runs A and B, and N trials of each that belong together."""

    cohort: Cohort  # of the two
    attempts: list[Attempts]
    trials: list[Ints]  # (N,) of each
    shared: int  # the first so many have the same seeds in both runs

    def correct(self) -> Floats:
        """Return 1 for correct and 0 for not, of the trials that belong together: (2, M, N)."""
        pairs = zip(self.cohort.outcomes, self.trials, strict=True)
        return np.stack([codes[:, of] == CORRECT for codes, of in pairs]).astype(float)


class Replay(NamedTuple):
    """K attempts of A, and all their n tokens that have a finite log-prob under both."""

    questions: Ints  # (K,)
    attempts: Ints  # (n,) which of the K
    logprobs_a: Floats  # (n,) as A's engine stored them, natural
    logprobs_b: Floats  # (n,) of the same tokens as a prompt of B's engine
    left_out: int  # tokens without a finite log-prob
    engine: dict[str, Any]  # B's, as it describes itself


def run(cfg: EquivalenceConfig) -> None:
    """Compare two runs: print tables and the conclusion, and save them."""
    if cfg.replay:
        load_folder(Path(cfg.folders[1]).expanduser(), [f"trust={cfg.trust}"], "equivalence")
    both = load(cfg.folders)
    decided, unit = decide(both, cfg.margin / 100)
    replayed = replay(both, cfg.replay) if cfg.replay else None
    tables = {"scores": of_scores(both, decided, unit), "tokens": of_tokens(both, replayed)}
    unlike, words = both.cohort.differences + _engines(both), sentence(both, decided, cfg, unit)
    display.show(*tables.values())
    results.print("\n".join([*(f"differs: {line}" for line in unlike), "", words]))
    first, second = both.cohort.members
    accuracy = decided._asdict()
    verdict = accuracy.pop("conclusion")
    record = {
        "settings": asdict(cfg),
        "runs": {member.name: str(member.run.path) for member in (first, second)},
        "dataset": first.run.cfg.dataset.name,
        "questions": len(both.cohort.question_ids),
        "trials": len(both.trials[0]),
        "shared_seeds": both.shared,
        "verdict": verdict,
        "words": words,
        "accuracy": {**accuracy, "verdict": verdict, "unit": unit},
        "scores": tables["scores"].rows,
        "tokens": tables["tokens"].rows,
        "engine": replayed and replayed.engine,
        "differences": unlike,
        "notes": {stem: table.notes for stem, table in tables.items()},
    }
    display.print_json(record)
    name = "-".join(map(selection.file_stem, both.cohort.names))
    folder = Path(cfg.out or first.run.path.parent / "_equivalence" / name).expanduser()
    written = selection.write_results(folder, "equivalence", record, tables, {})
    note(f"saved {written[-1]}, {', '.join(tables)} as .csv, .json, .tex, .md")


def decide(both: Pair, margin: float) -> tuple[Equivalence, str]:
    """Test the difference in accuracy, with trials as draws; with one trial, questions.

    The margin is a share, 0.01 for one point. Returns what is decided, and what was drawn: "trials"
    or "questions".
    """
    a, b = both.correct()
    if a.shape[1] > 1 or len(a) < 2:
        return equivalence(a, b, margin), "trials"
    return equivalence(a.T, b.T, margin), "questions"


def sentence(both: Pair, e: Equivalence, cfg: EquivalenceConfig, unit: str) -> str:
    """Write the conclusion in words; the margin is in points."""
    points, (n, m) = plural(cfg.margin, "point"), both.correct().shape[:0:-1]
    difference, lo, hi, outer_lo, outer_hi = (
        f"{100 * share:+.2f}" for share in (e.difference, e.lo, e.hi, e.outer_lo, e.outer_hi)
    )
    estimate = f"accuracy of {' minus '.join(both.cohort.names)} is {difference} points"
    inner = f"95% interval {lo} to {hi}"
    if e.conclusion == "equivalent":
        text = f"equivalent within {points}: {estimate}, {inner}"
        if e.outer_lo > 0 or e.outer_hi < 0:
            text += "; they are not equal, but closer than the margin"
    elif e.conclusion == "different":
        outer = f"97.5% interval {outer_lo} to {outer_hi}"
        text = f"different: {estimate}, {outer}, excluding 0 (margin {points})"
    else:
        needed = f"{e.trials:,.0f} {unit} of each run would decide it"
        text = f"undecided within {points}: {estimate}, {inner}; {needed}"
    had = f"{n} trial{'s' * (n > 1)} of {m} questions"
    if e.smallest >= 1:
        return f"{text}. {had} are too few to show any difference with 95% power."
    smallest = f"a difference of {100 * e.smallest:.2f} points with 95% power"
    return f"{text}. {had} would have shown {smallest}."


def of_scores(both: Pair, e: Equivalence, unit: str) -> Table:
    """Tabulate accuracy, length and mean log-prob of both, and differences of paired trials."""
    a, b = both.correct()
    own = _row("accuracy", a, b, Summary(e.difference, e.sigma, e.lo, e.hi))
    rows = [own | {"smallest": e.smallest, "trials": e.trials}]
    for name, key in (("tokens per attempt", "lengths"), ("log-prob per token", "logprobs")):
        sides = zip(both.attempts, both.trials, strict=True)
        first, second = (getattr(of, key)[:, trials] for of, trials in sides)
        if np.isfinite(first).all() and np.isfinite(second).all():
            turned = (first, second) if unit == "trials" else (first.T, second.T)
            rows.append(_row(name, first, second, paired_trials(*turned)))
    number = "{:.4g}"
    heads = [
        *columns(align="left", what="what"),
        *columns(number, a=both.cohort.names[0], b=both.cohort.names[1]),
        Column("difference", "difference", None, "{:+.2g}", short="diff."),
        *columns(number, wide=True, sigma="s.e."),
        *columns("{:+.2g}", low="low", high="high"),
        *columns(number, wide=True, smallest="95% power"),
        Column("trials", f"{unit} needed", None, "{:.0f}", wide=True),
    ]
    (m, n), sample = a.shape, "with the questions as a sample of others like them"
    drawn = "of the difference on these questions; trials are the draws"
    notes = [
        f"{m} questions, {n} trials of each run, paired; {both.shared} of the {n} share their seed",
        f"low, high: 95% interval{f', {sample}' if unit == 'questions' else f' {drawn}'}",
        "log-prob per token: mean over attempts of each attempt's mean, before temperature",
    ]
    return Table(" and ".join(both.cohort.names), heads, rows, notes)


def _row(what: str, a: Floats, b: Floats, summary: Summary) -> dict[str, Any]:
    numbers = zip(("difference", "sigma", "low", "high"), summary, strict=True)
    return {"what": what, "a": a.mean(), "b": b.mean(), **dict(numbers)}


def of_tokens(both: Pair, replayed: Replay | None) -> Table:
    """Tabulate the replay, and where attempts with the same seed part."""
    rows, notes = [], ["low, high: 95% interval, attempts clustered by question"]
    if replayed is not None:
        gaps = replayed.logprobs_a - replayed.logprobs_b
        kl = kl_terms(replayed.logprobs_a, replayed.logprobs_b)
        for what, values in (("log p(A) − log p(B)", gaps), ("KL(A‖B), k3", kl)):
            sums = np.bincount(replayed.attempts, values, len(replayed.questions))
            sizes = np.bincount(replayed.attempts, minlength=len(replayed.questions))
            mean = per_token(sums, sizes, replayed.questions)
            rows.append(_mean(what, values.size, mean))
        notes += _replay_notes(both, replayed)
    questions, differ = unlike_tokens(both)
    if differ.size:
        share = per_token(differ, np.ones(differ.size), questions)
        rows.append(_mean("tokens differ", differ.size, share))
        notes.append("tokens differ: share of the attempts with the same seed in both runs")
    heads = [
        *columns(align="left", what="what"),
        *columns(number="of"),
        *columns("{:.2g}", mean="mean", low="low", high="high"),
    ]
    return Table("tokens of {}, and of {}".format(*both.cohort.names), heads, rows, notes)


def _mean(what: str, number: int, mean: Summary) -> dict[str, Any]:
    return {"what": what, "number": number, "mean": mean.value, "low": mean.low, "high": mean.high}


def _replay_notes(both: Pair, replayed: Replay) -> list[str]:
    """Write what the replay estimates, which depends on how A was sampled."""
    (first, second), s = both.cohort.names, both.cohort.members[0].run.cfg.sampling
    notes = [
        f"log p: {len(replayed.questions)} attempts of {first} as stored (A) and as prompts"
        f" of the engine of {second} (B), natural, a token; k3: (r − 1) − log r, r ="
        " p(B)/p(A); both are the models' own, so temperature and cuts do not show in them",
    ]
    cuts = {"temperature": s.temperature, "top-p": s.top_p, "top-k": s.top_k}
    cuts |= {"min-p": s.min_p} if s.min_p else {}
    if narrow := [f"{k} {v:g}" for k, v in cuts.items() if v not in (None, 1)]:
        notes.append(
            f"A was sampled at {', '.join(narrow)}: the means are over such tokens, which are"
            " likelier than the model's own, and k3 is 0 only where both agree on them; a KL of the"
            " models it is at temperature 1 without a cut"
        )
    if replayed.left_out:
        notes.append(f"{replayed.left_out} tokens without a finite log-prob are left out")
    return notes


def _engines(both: Pair) -> list[str]:
    """List what is not alike in the models of both and in the engines that they first had."""
    members, lines, made = both.cohort.members, list[str](), dict[str, dict[str, Any]]()
    for key in _MODEL:
        values = {member.name: getattr(member.run.cfg.model, key) for member in members}
        lines += unequal(f"model.{key}", values)
    for member in members:
        generated = runfolder.read_json(member.run.manifest).get("generated") or {}
        engine = (generated.get("engines") or [{}])[0]
        made[member.name] = {f"made by {k}": v for k, v in engine.items() if k not in _NAMED}
    for key in sorted(set.intersection(*map(set, made.values()))):  # of one kind of engine: all
        lines += unequal(key, {name: of[key] for name, of in made.items()})
    return lines


def load(folders: list[str]) -> Pair:
    """Read the runs in two folders, side by side.

    Trials whose questions have the same seeds in both runs are a pair; what is left over is paired
    in its order. Only trials count that are graded for every question. Raises UserError: one folder
    twice, no run in it, other questions, no trial that is complete.
    """
    paths = [Path(folder).expanduser() for folder in folders]
    if paths[0].resolve() == paths[1].resolve():
        raise UserError(f"{folders[1]}: named twice; name two different run folders")
    both = cohort.of_runs("equivalence", dict.fromkeys(paths), named=True, strict=True)
    sizes = [len(member.run.questions) for member in both.members]
    if max(sizes) > len(both.question_ids):
        raise UserError(
            f"{paths[1] / 'questions.parquet'}: question_hash: {len(both.question_ids)} of its"
            f" {sizes[1]} questions are among the {sizes[0]} of {paths[0]}; sample the same"
            " questions in both runs (dataset=NAME dataset.limit=N)"
        )
    attempts = [_attempts(member) for member in both.members]
    complete = [np.flatnonzero((codes != PENDING).all(axis=0)) for codes in both.outcomes]
    for path, whole in zip(paths, complete, strict=True):
        if not whole.size:
            raise UserError(
                f"{path / 'grades'}: outcome: no trial is graded for every question; run"
                f" `{PROGRAM} run {path}`"
            )
    seeds = [of.seeds[:, whole] for of, whole in zip(attempts, complete, strict=True)]
    *at, shared = paired(seeds[0], seeds[1])
    trials = [whole[positions] for whole, positions in zip(complete, at, strict=True)]
    if len(both.question_ids) * trials[0].size < 2:
        raise UserError(f"{paths[0]}: one attempt is not enough; sample with sampling.trials=8")
    return Pair(both, attempts, trials, shared)


def paired(first: Ints, second: Ints) -> tuple[Ints, Ints, int]:
    """Pair trials by the seeds (M, T) of their questions: positions in both, (N,).

    The first pairs, as many as the number returned, share all their seeds. No seed is then in two
    pairs, so that pairs are independent draws.

    >>> paired(np.array([[7, 8, 9]]), np.array([[8, 9, 10, 11]]))
    (array([1, 2, 0]), array([0, 1, 2]), 2)
    """
    both = np.concatenate([first, second], axis=1)
    labels = np.unique(both, axis=1, return_inverse=True)[1].ravel()
    labels[(both == _UNKNOWN).any(axis=0)] = _UNKNOWN
    left, right = np.split(labels, [first.shape[1]])
    shared, a, b = np.intersect1d(left, right, return_indices=True)
    known = shared != _UNKNOWN
    a, b = np.stack([a[known], b[known]])[:, np.argsort(a[known])]
    rest = [np.setdiff1d(np.arange(of.size), at) for of, at in ((left, a), (right, b))]
    n = min(len(positions) for positions in rest)
    return np.append(a, rest[0][:n]), np.append(b, rest[1][:n]), a.size


def _attempts(member: Member) -> Attempts:
    """Read what the attempts of a run hold; a warning names what is unreadable."""
    ids = pa.array(member.question_ids, pa.string())
    names = ["seed", "completion_tokens", "token_ids", "logprobs"]
    table = tables.streamed(member.run, "attempts", names)
    stored = pc.is_valid(table["token_ids"]).to_numpy()
    columns = {
        "lengths": pc.cast(table["completion_tokens"], pa.float64()).to_numpy(),
        "logprobs": -bits_per_token(table["logprobs"].combine_chunks()) * math.log(2),
        "seeds": pc.fill_null(table["seed"], _UNKNOWN).to_numpy(),
        "rows": np.where(stored, np.arange(stored.size), -1),
    }
    blank = {"lengths": np.nan, "logprobs": np.nan, "seeds": _UNKNOWN, "rows": -1}
    shape = len(ids), member.run.cfg.sampling.trials
    matrices = {
        name: tables.placed(table, ids, values, shape, blank[name])
        for name, values in columns.items()
    }
    return Attempts(**matrices, table=table.select(["token_ids", "logprobs"]))


def unlike_tokens(pair: Pair) -> tuple[Ints, Bools]:
    """Compare the tokens of attempts with the same seed, of both runs, that have tokens.

    Returns the question of each such attempt, and whether its tokens differ.
    """
    a, b = pair.attempts
    trials = np.stack(pair.trials)[:, : pair.shared].T.tolist()
    found = [
        (question, not np.array_equal(a.tokens(question, of_a), b.tokens(question, of_b)))
        for question in range(len(a.rows))
        for of_a, of_b in trials
        if a.rows[question, of_a] >= 0 and b.rows[question, of_b] >= 0
    ]
    questions, differ = np.array(found, np.int64).reshape(-1, 2).T
    return questions, differ > 0


def replay(pair: Pair, most: int) -> Replay:
    """Give attempts of A to B's engine as prompts, spread evenly over questions and trials.

    The engine is loaded as the settings in B's folder say, with the room that B's own attempts had.
    What of A is longer is cut there, as is the last token of an attempt that fills the room.
    """
    for member in pair.cohort.members:
        if member.run.cfg.prompt.shuffle == "trial" or member.run.cfg.prompt.variants:
            raise UserError(
                f"{member.run.path}: prompt.shuffle=trial or prompt.variants: several"
                f" prompts for a question; use runs with prompt.shuffle=question, {OUT}"
            )
    keys = _chosen(pair, most)
    prompts, room = _prompts(pair)
    own, run_b = pair.attempts[0], pair.cohort.members[1].run
    sequences = [(prompts[q] + own.tokens(q, trial).tolist())[:room] for q, trial in keys]
    seen, described = _prompt_logprobs(run_b, sequences, room + 1)
    if any(np.shape(v) != (len(ids),) for v, ids in zip(seen, sequences, strict=True)):
        name = run_b.cfg.engine.name
        raise UserError(
            f"engine={name}: has no log-probs of prompts; use one that has them for both, {OUT}"
        )
    of_b = [values[len(prompts[q]) :] for (q, _), values in zip(keys, seen, strict=True)]
    stored = (own.table["logprobs"][own.rows[key]].values.to_numpy() for key in keys)
    of_a = [logprobs[: len(b)] for logprobs, b in zip(stored, of_b, strict=True)]
    attempts = np.repeat(np.arange(len(keys)), [len(values) for values in of_b])
    a, b = (np.concatenate(values).astype(np.float64) for values in (of_a, of_b))
    finite = np.isfinite(a) & np.isfinite(b)
    questions = np.array([question for question, _ in keys])
    left_out = int((~finite).sum())
    return Replay(questions, attempts[finite], a[finite], b[finite], left_out, described)


def _chosen(pair: Pair, most: int) -> list[tuple[int, int]]:
    """Choose question and trial of up to so many attempts of A, evenly over those compared."""
    own, trials = pair.attempts[0], pair.trials[0]
    usable = np.argwhere((own.rows[:, trials] >= 0) & np.isfinite(own.logprobs[:, trials]))
    if not usable.size:
        raise UserError(
            f"{pair.cohort.members[0].run.path / 'attempts'}: token_ids, logprobs: none stored, so"
            f" nothing can be replayed; sample A with sampling.logprobs=true, {OUT}"
        )
    spread = np.linspace(0, len(usable) - 1, min(most, len(usable))).round().astype(int)
    return [(q, int(trials[trial])) for q, trial in usable[np.unique(spread)].tolist()]


def _prompts(pair: Pair) -> tuple[list[list[int]], int]:
    """Read the prompts of both runs, (M,), which are the same tokens, and the room B's had."""
    run_a, run_b = (member.run for member in pair.cohort.members)
    prompts, room = list[list[int]](), 0
    for of_a, of_b in zip(*(member.rows for member in pair.cohort.members), strict=True):
        prompt, row = run_a.questions[of_a]["prompt_token_ids"], run_b.questions[of_b]
        if prompt is None or prompt != row["prompt_token_ids"]:
            raise UserError(
                f"{run_b.path / 'questions.parquet'}: prompt_token_ids: those of question"
                f" {row['question_id']} are not those in {run_a.path}; use the same tokenizer,"
                f" chat template and prompt for both, {OUT}"
            )
        prompts.append(prompt)
        room = max(room, len(prompt) + row["max_tokens"] - 1)
    return prompts, room


def _prompt_logprobs(
    run: Run, sequences: list[list[int]], longest: int
) -> tuple[list[Any], dict[str, Any]]:
    """Return log-probs of sequences by a run's engine, and how it describes itself."""
    name = run.cfg.engine.name
    note(f"loading {run.cfg.model.name} with {name} as in {run.path} ...")
    try:
        cfg = sizing.resolved_alone(run.cfg, run.questions)
        engine = engines.load(cfg, longest, run.questions)
    except UserError as error:
        raise type(error)(f"{error}; {OUT}") from error
    try:
        seen, described = list[Any](), engine.describe()
        with Meter("replay", len(sequences)) as meter:
            for start in range(0, len(sequences), _AT_ONCE):
                part = sequences[start : start + _AT_ONCE]
                seen += engine.prompt_logprobs(part)
                meter.advance(len(part))
        return seen, described
    except Exception as error:  # engines raise whatever their parts raise
        raise UserError(
            f"engine={name} failed while replaying: {one_line(error)}; it may work with less memory"
            f" (replay=50, or engine.batch_size in {run.path / 'config.yaml'}), {OUT}"
        ) from error
    finally:
        with contextlib.suppress(Exception):  # its processes may be gone already
            engine.close()
