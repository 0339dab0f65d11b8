"""generate: sample every attempt that is owed, and make each durable the moment it is finished."""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from pipeline import engines, lease, models, prepare, runfolder, shards
from pipeline.attempts import AttemptWriter
from pipeline.console import Meter, count, note, warn
from pipeline.environment import describe
from pipeline.errors import Interrupted, UserError
from pipeline.runfolder import Run
from pipeline.tables import ATTEMPTS


def generate(run: Run) -> None:
    """Sample what the run owes: every (question_id, trial) without a readable attempt.

    Raises:
        UserError: when the folder was made with other settings, the engine cannot be loaded, the
            disk is full, or another process is generating here.
        Interrupted: after SIGINT or SIGTERM; finished attempts are kept.
    """
    weights = {"model.weights": models.fingerprint(run.cfg.model)}
    runfolder.check_same(run, runfolder.settings(run.cfg) | weights)
    damage = shards.Damage()
    if not runfolder.owed(run, damage) and not damage.lines and not _missing_prompt_logprobs(run):
        _report_nothing_owed(run)
        return
    with _writable(run), lease.held(run.path / "generate.lease", "generating"):
        for line in shards.seal_leftovers(run.attempts, ATTEMPTS):
            warn(f"attempts/{line}: its rows are owed again")
            runfolder.forget_grades(run)
        runfolder.save_config(run)
        owed = _owed(run)
        with _stop_requests() as stop:
            _generate(run, owed, stop)


def _owed(run: Run) -> list[tuple[str, int]]:
    damage = shards.Damage()
    owed = runfolder.owed(run, damage)
    damaged_parts = {p: lines for p, lines in damage.lines.items() if p.suffix == ".parquet"}
    if damaged_parts:
        damage = shards.Damage(damaged_parts)
        warn(f"attempts: {damage}; those rows are owed again, the damaged files are set aside")
        shards.set_aside(damage, ATTEMPTS)
        runfolder.forget_grades(run)
    return owed


def _missing_prompt_logprobs(run: Run) -> list[dict[str, Any]]:
    if not run.cfg.sampling.prompt_logprobs:
        return []
    return [row for row in run.questions if row["prompt_logprobs"] is None]


def _report_nothing_owed(run: Run) -> None:
    total = len(run.wanted)
    note(f"generate: nothing owed, all {total} attempts are there (sampling.trials=N adds more)")


def _generate(run: Run, owed: list[tuple[str, int]], stop: "StopFlag") -> None:
    worker = shards.worker_id()
    session = Session(run, worker, len(owed))
    began = time.time()
    rows = {row["question_id"]: row for row in run.questions}
    longest = max(len(row["prompt_token_ids"]) + row["max_tokens"] for row in rows.values())
    note(f"loading {run.cfg.model.name} with {run.cfg.engine.name} ...")
    engine = engines.load(run.cfg, longest)
    session.loaded(time.time() - began, engine.describe())
    try:
        _add_prompt_logprobs(run, engine)
        _sample(run, engine, rows, owed, stop, session)
    finally:
        session.save(ended=True)
        with contextlib.suppress(Exception):  # after Ctrl-C its processes may be gone already
            engine.close()


def _add_prompt_logprobs(run: Run, engine: engines.Engine) -> None:
    """One request per question, apart from the trials: it would keep them off the prefix cache."""
    missing = _missing_prompt_logprobs(run)
    if not missing:
        return
    try:
        found = engine.prompt_logprobs([row["prompt_token_ids"] for row in missing])
    except Exception as error:  # engines raise whatever their parts raise
        raise _engine_error(run, error) from error
    for row, logprobs in zip(missing, found, strict=True):
        row["prompt_logprobs"] = logprobs
    prepare.write(run.path / "questions.parquet", run.questions)


def _sample(
    run: Run,
    engine: engines.Engine,
    rows: dict[str, dict[str, Any]],
    owed: list[tuple[str, int]],
    stop: "StopFlag",
    session: "Session",
) -> None:
    total = len(run.wanted)
    writer = AttemptWriter(run.attempts, session.worker)
    try:
        with Meter("generate", total, done=total - len(owed)) as meter:
            for completion in engine.generate(_requests(run, rows, owed)):
                if completion is not None:
                    writer.put(_row(completion))
                    session.add(completion)
                    meter.advance(1, session.detail)
                    continue
                writer.tick()
                if stop.signal_number:
                    break
                meter.advance(0, session.detail)
    except Exception as error:
        if writer.error is not None:
            raise _disk_error(run, writer.error) from error
        # Ctrl-C reaches the engine's own processes too, which may fail before we stop.
        if not stop.signal_number:
            raise _engine_error(run, error) from error
    finally:
        try:
            writer.close()
        except OSError as error:
            raise _disk_error(run, error) from error
    if stop.signal_number:
        left = len(owed) - session.attempts
        raise Interrupted(
            f"stopped: {total - left} of {total} attempts are kept in {run.path}; the same command"
            f" makes the other {left}",
            stop.signal_number,
        )


def _requests(
    run: Run, rows: dict[str, dict[str, Any]], owed: list[tuple[str, int]]
) -> Iterator[engines.Request]:
    seed = run.cfg.sampling.seed
    for question_id, trial in owed:
        row = rows[question_id]
        yield engines.Request(
            question_id=question_id,
            trial=trial,
            prompt_token_ids=row["prompt_token_ids"],
            max_tokens=row["max_tokens"],
            seed=None if seed is None else seed + trial,
        )


def _row(done: engines.Completion) -> dict[str, Any]:
    return {
        "question_id": done.request.question_id,
        "trial": done.request.trial,
        "seed": done.request.seed,
        "text": done.text,
        "finish_reason": done.finish_reason,
        "prompt_tokens": len(done.request.prompt_token_ids),
        "completion_tokens": len(done.token_ids),
        # Typed arrays: eight times smaller than lists, should attempts wait for the disk.
        "token_ids": np.asarray(done.token_ids, dtype=np.int32),
        "logprobs": None if done.logprobs is None else np.asarray(done.logprobs, dtype=np.float32),
        "started": done.started,
        "first_token": done.first_token,
        "finished": done.finished,
    }


class Session:
    """What one process did: kept in sessions/, so that costs can be added up later."""

    def __init__(self, run: Run, worker: str, owed: int) -> None:
        self.path = run.path / "sessions" / f"{worker}.json"
        self.worker = worker
        self.attempts = self.tokens = self.truncated = self.boxed = 0
        self.sampling_began = self.saved = time.time()
        self.record: dict[str, Any] = {
            "worker": worker,
            "owed": owed,
            "gpus": run.cfg.engine.tensor_parallel_size,
            **describe(),
        }

    def loaded(self, seconds: float, engine: dict[str, Any]) -> None:
        """The engine is ready after so many seconds."""
        self.record |= {"load_s": round(seconds, 3), "engine": engine}
        if engine.get("device") == "cpu":
            self.record["gpus"] = 0
        self.sampling_began = time.time()
        self.save()

    def add(self, done: engines.Completion) -> None:
        """Count one finished attempt; saves the record every half minute."""
        self.attempts += 1
        self.tokens += len(done.token_ids)
        self.truncated += done.finish_reason == "length"
        self.boxed += "\\boxed" in done.text
        if time.time() - self.saved > 30:
            self.save()

    def save(self, ended: bool = False) -> None:
        """Write the record; a session without `ended` was killed."""
        self.saved = time.time()
        wall = self.saved - self.sampling_began
        self.record |= {
            "attempts": self.attempts,
            "completion_tokens": self.tokens,
            "wall_s": round(wall, 3),
            "gpu_s": round((wall + self.record.get("load_s", 0)) * self.record["gpus"], 3),
            "ended": ended,
        }
        with contextlib.suppress(OSError):  # a full disk is reported where attempts are lost
            self.path.parent.mkdir(exist_ok=True)
            runfolder.write_json(self.path, self.record)

    def detail(self) -> str:
        """Rates and shares for the progress line."""
        if not self.attempts:
            return "no attempt finished yet"
        rate = self.tokens / max(time.time() - self.sampling_began, 1e-9)
        return (
            f"{count(rate)} tokens/s, {self.boxed / self.attempts:.0%} boxed,"
            f" {self.truncated / self.attempts:.0%} truncated"
        )


class StopFlag:
    """Set by SIGINT or SIGTERM; a second signal ends the process at once."""

    signal_number: int = 0


@contextlib.contextmanager
def _stop_requests() -> Iterator[StopFlag]:
    flag = StopFlag()

    def stop(number: int, frame: FrameType | None) -> None:
        if flag.signal_number:
            raise KeyboardInterrupt
        flag.signal_number = number
        note("stopping: writing what is finished (once more to quit at once) ...")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _writable(run: Run) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _disk_error(run, error) from error


def _engine_error(run: Run, error: Exception) -> UserError:
    return UserError(
        f"engine={run.cfg.engine.name} failed while generating:"
        f" {' '.join(str(error).split())[:400] or type(error).__name__}. Finished attempts are"
        " kept; the same command continues"
    )


def _disk_error(run: Run, error: OSError) -> UserError:
    return UserError(
        f"{run.path}: {error.strerror or error}. Finished attempts that were written are kept;"
        " mend the disk (free space, permissions), then the same command continues"
    )


def mean_tokens(folder: Path) -> float | None:
    """Mean completion tokens of the attempts that are there."""
    tokens = attempts = 0
    for batch in shards.batches(folder, ATTEMPTS, ["completion_tokens"], shards.Damage()):
        tokens += sum(batch["completion_tokens"].to_pylist())
        attempts += batch.num_rows
    return tokens / attempts if attempts else None
