"""One run of a worker: its claims, budget, writer and session."""

import contextlib
import math
import statistics
import time
from collections import Counter, defaultdict

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.console import note, warn
from bayes_at_n.pipeline.base.errors import Interrupted, Replaced, TryAgain, UserError, one_line
from bayes_at_n.pipeline.base.program import kind
from bayes_at_n.pipeline.config.settings import attempt_seed
from bayes_at_n.pipeline.engines import Completion
from bayes_at_n.pipeline.generate import allowance
from bayes_at_n.pipeline.generate.allowance import Allowance
from bayes_at_n.pipeline.generate.attempts import AttemptWriter, Continued, leave, row_of, tidy
from bayes_at_n.pipeline.prepare import questions_table, solved
from bayes_at_n.pipeline.store import provenance, runfolder, shards
from bayes_at_n.pipeline.store.columns import CUT, FINISHED
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import claims, stopping
from bayes_at_n.pipeline.workers.claims import Claims, Heartbeat
from bayes_at_n.pipeline.workers.session import Session, Slot

# How long an idle worker waits in case a busy one dies: by then a dead one's claims have expired.
LINGER_S = lease.EXPIRE_S + 30.0
MOST_TRIES = 3  # of an attempt that the engine returns unfinished
IDLE_S = 0.2
RACE_S = 1.0
GATHER_S = 0.1  # between two frames of a journal: attempts that finish together share one
_MOST_IN_FRAME = 64  # attempts; about 25 MB at 32,768 tokens each
_PROMPTS_AT_ONCE = 64


class Job:
    """Samples the pending attempts of one run within a worker; its exit ends the session.

    `number`: index among the worker's `n_runs` runs; `slot`: the worker's, if it has a supervisor.
    """

    def __init__(
        self, run: Run, number: int, n_runs: int, watch: stopping.Watch, slot: Slot | None = None
    ) -> None:
        self.run, self.number, self.watch = run, number, watch
        self.rows = {row["question_id"]: row for row in run.questions}
        self.keys = run.keys
        self.position = {key: position for position, key in enumerate(self.keys)}
        self.continued = Continued(run)
        self.prompts = questions_table.prompts_of_trials(run)
        self.session = Session(run.path, run.cfg, shards.worker_id(), slot, 1 / n_runs)
        self.allowance = Allowance(run, self.session)
        self.in_flight = self.allowance.in_flight
        # Allowed now; attempts pending beyond these.
        self.trials, self.later = allowance.trials(run), 0
        self.planned = len(allowance.allowed(run, self.keys, run.cfg.sampling.trials))
        self.lengths = defaultdict[str, list[int]](list)  # of finished attempts, by question
        self.unfinished: dict[int, list[str]] = {}  # reasons of each attempt returned unfinished
        self.open = False  # whether it may still claim attempts
        self.error: UserError | None = None  # what ended it while other runs continue
        self.writer: AttemptWriter | None = None
        self._finished: list[Completion] = []  # not written yet
        self._written_at = 0.0
        self._busy_at = time.monotonic()  # when an attempt was last begun
        self._race_read_at = time.monotonic()
        self._checked_at = 0.0  # when `nothing_left` last looked
        self._rereads = 3  # of the table, to confirm that all blocks marked done are in it
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Job":
        cfg, enter = self.run.cfg, self._stack.enter_context
        self.check = enter(stopping.unmoved(self.run.path, "attempts were sampled"))
        self.heartbeat = enter(Heartbeat(self.run.path, self.session.worker, self.check))
        self.watch.beats.append(self.heartbeat)
        in_order = cfg.race or cfg.budget.given  # short attempts must not come first
        length = None if in_order else lambda position: self.mean_length(self.keys[position][0])
        self.claims = Claims(self.heartbeat, self._pending, length=length)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        with stopping.writable(self.run.path), self._stack:
            self.watch.beats.remove(self.heartbeat)
            if error is not None:
                self._end(error)
            elif self.error is not None:
                with contextlib.suppress(stopping.Moved):
                    self._end(self.error)
            else:
                self.session.end("done")
                self._stack.close()
                leave(self.run)

    def _end(self, error: BaseException) -> None:
        self.check()  # before the session is written: a deleted folder must stay deleted
        early = isinstance(error, Interrupted | KeyboardInterrupt)
        self.session.end("stopped" if early else "failed", str(error) or type(error).__name__)
        if isinstance(error, Replaced):
            runfolder.prove(self.run, good=False, own=self.session.worker)
            raise UserError(f"{error}. {runfolder.suspects(self.run)}".strip()) from None

    @property
    def left(self) -> int:
        """Return how many attempts are not yet durable, allowed now or later."""
        return len(self.claims.pending) + self.later

    @property
    def dropped(self) -> bool:
        """Return whether the model has left its race, so that its attempts need not finish."""
        return not self.trials

    def begin(self) -> None:
        """Tidy up after dead workers and read what is pending."""
        tidy(self.run)
        runfolder.save(self.run, *runfolder.TRIALS)
        if not runfolder.alive(self.run.path) - {self.session.worker}:
            claims.clear(self.run.path)
        needed = self.claims.read() or runfolder.missing_prompt_logprobs(self.run)
        self.open = bool(needed or runfolder.unproven(self.run))

    def loaded(self, engine: engines.Engine) -> None:
        """Start sampling with a loaded engine, if anything is pending."""
        if not self.open:
            return
        self.check()
        self.tokenizer = engine.tokenizer
        runfolder.prove(self.run, good=True)
        self.session.loaded(self.left, engine.describe())
        manifest = runfolder.check_same(self.run, provenance.identity(self.run.cfg))
        suffix, metadata = runfolder.part_suffix(self.run), provenance.part_metadata(manifest)
        engine_kind = kind(self.run.cfg.engine.name)
        suffix += runfolder.UNPROVEN * (engine_kind.served and not engine_kind.in_process)
        self.writer = AttemptWriter(
            self.run.attempts, self.session.worker, suffix, metadata, self.check
        )

    def next(self, capacity: int, batch: int) -> engines.Request | None:
        """Return the next attempt to begin; None if there is none right now.

        Args:
            capacity: the most attempts of this run that may be in flight.
            batch: how many sequences the engine runs at once.
        """
        begun = len(self.in_flight)
        most = min(capacity, begun + self.allowance.may_begin(capacity))
        position = self.claims.take(begun, most, batch)
        if position is None:
            return None
        self.allowance.began(position)
        self._busy_at = time.monotonic()
        question_id, trial = self.keys[position]
        cfg, row = self.run.cfg, self.prompts(self.rows[question_id], trial)
        request = engines.Request(
            question_id=question_id,
            trial=trial,
            prompt_token_ids=row["prompt_token_ids"],
            messages=questions_table.messages(row),
            max_tokens=row["max_tokens"],
            seed=attempt_seed(cfg, question_id, trial),
            run=self.number,
            cfg=cfg,
            options=solved.options(cfg, self.tokenizer, row) if cfg.sampling.likelihood else (),
        )
        return self.continued(request)

    def ended(self, completion: Completion) -> None:
        """Record a completion of the engine, finished or not."""
        position, reason = self._position(completion), completion.finish_reason
        self.allowance.ended(position, completion)
        if reason in FINISHED:
            self._finished.append(completion)
            self.lengths[completion.request.question_id].append(completion.tokens or 0)
            self.session.add(completion.finished - completion.started, **counts(completion))
            if self.writer is not None and len(self._finished) >= _MOST_IN_FRAME:
                self._write(self.writer)
            return
        reasons = self.unfinished.setdefault(position, [])
        reasons.append(reason)
        times = self.session.record["unfinished"]
        times[reason] = times.get(reason, 0) + 1
        if len(reasons) < MOST_TRIES:  # else `release` leaves it to other workers
            self.claims.again(position)

    def tick(self) -> None:
        """Write finished attempts, save the session, and follow the race."""
        if self.writer is not None:
            self.check()
            self._write(self.writer, GATHER_S)
            state = "sampling" if self.in_flight else "waiting"
            self._follow_race()
            self.session.tick(state, self.left, in_flight=len(self.in_flight))

    def nothing_left(self) -> bool:
        """Return whether this worker is done with the run; others may be sampling the rest."""
        if self.writer is None or self.in_flight or time.monotonic() - self._checked_at < IDLE_S:
            return self.writer is None
        self._checked_at = time.monotonic()
        self._write(self.writer)
        self.writer.sync()
        self._write(self.writer)
        if self._follow_race(idle=True):
            return False
        if self.claims.pending - self._given_up():  # other workers have claimed these
            if self.allowance.over():
                return True
            if time.monotonic() - self._busy_at > LINGER_S:
                note(f"{len(self.claims.pending)} attempts are left to other workers")
                return True
            return False
        self._rereads -= 1
        return self._rereads < 0 or self.claims.read() <= len(self._given_up())

    def close(self) -> None:
        """Make finished attempts durable and release the other claims."""
        self.open, writer = False, self.writer
        if writer is None:
            return
        self.writer = None
        try:
            try:
                self._write(writer)
            finally:
                writer.close()
            self._write(writer)
            self.session.record["left"] = self.left
            self.session.save()
        finally:
            with contextlib.suppress(OSError):  # then the claims expire as a dead worker's do
                self.claims.release()

    def prove(self, engine: engines.Engine, limit_s: float) -> bool:
        """Return whether the server still has the run's model, which proves what was written."""
        if self.writer is not None:
            self._write(self.writer)
            self.writer.cut()
        if same := engine.has_run_model(limit_s):
            runfolder.prove(self.run, good=True, own=self.session.worker)
        return same

    def add_prompt_logprobs(self, engine: engines.Engine, stop: stopping.StopFlag) -> None:
        """Add the log-probs of prompts, once per question; if that fails they stay null."""
        if not runfolder.missing_prompt_logprobs(self.run):
            return
        path = self.run.path / runfolder.CLAIMS / "prompts"
        with contextlib.suppress(lease.Taken), lease.held(path, "adding log-probs of prompts"):
            run = Run(self.run.cfg)  # another worker may have written them since
            missing = runfolder.missing_prompt_logprobs(run)
            try:
                for start in range(0, len(missing), _PROMPTS_AT_ONCE):
                    rows = missing[start : start + _PROMPTS_AT_ONCE]
                    prompts = [row["prompt_token_ids"] for row in rows]
                    with self.watch.awaiting(stopping.silence_s(run.cfg.engine)):
                        values = engine.prompt_logprobs(prompts)
                    for row, logprobs in zip(rows, values, strict=True):
                        row["prompt_logprobs"] = logprobs
            except Exception as error:  # engines raise whatever their parts raise
                if stop.signal_number:
                    return
                if isinstance(error, UserError):
                    raise
                with runfolder.locked_settings(run):
                    failing = {runfolder.UNREADABLE: runfolder.reader_versions(run)}
                    runfolder.write_json(run.manifest, runfolder.read_manifest(run) | failing)
                return warn(
                    f"log-probs of prompts: the engine failed ({one_line(error)}); they stay null."
                    " To try again with vLLM's other model runner, `run` with"
                    " VLLM_USE_V2_MODEL_RUNNER=0"
                )
            if missing and not stop.signal_number:
                self.prove(engine, stopping.PROBE_S)
                self.check()
                questions_table.write(run.path / "questions.parquet", run.questions)

    def check_finished(self) -> None:
        """Raise TryAgain if attempts that the engine returned unfinished are still pending."""
        if not self._given_up() or not self.claims.read():
            return
        reasons = [self.unfinished[position] for position in self._given_up()]
        if reasons:
            times = Counter(reason for tries in reasons for reason in tries)
            listed = ", ".join(f"{reason} {n} times" for reason, n in times.most_common())
            raise TryAgain(
                f"engine={self.run.cfg.engine.name} returned {len(reasons)} attempts unfinished,"
                f" each {MOST_TRIES} times ({listed}). They stay pending, the others are kept;"
                " the same command tries again"
            )

    def mean_length(self, question_id: str = "") -> float:
        """Return the mean length of finished attempts, at a question if there are any.

        Infinite before the first; of this worker's attempts.
        """
        if lengths := self.lengths.get(question_id):
            return statistics.fmean(lengths)
        record = self.session.record
        return record["completion_tokens"] / record["attempts"] if record["attempts"] else math.inf

    def _pending(self) -> list[int]:
        pending = runfolder.pending(self.run)
        allowed = [self.position[key] for key in allowance.allowed(self.run, pending, self.trials)]
        most = self.run.cfg.sampling.trials
        self.later = len(allowance.allowed(self.run, pending, most)) - len(allowed)
        return allowed

    def _follow_race(self, idle: bool = False) -> bool:
        """Read how many trials the race allows now; return whether that is more than before."""
        due = idle or time.monotonic() - self._race_read_at >= RACE_S
        if self.run.cfg.race is None or not due:
            return False
        before, self._race_read_at = self.trials, time.monotonic()
        allowed = allowance.trials(self.run, idle, before)
        self.trials = max(allowed, before) if allowed else 0
        if self.trials > before:
            self.claims.read()
        return self.trials > before

    def _given_up(self) -> set[int]:
        tried = (p for p, reasons in self.unfinished.items() if len(reasons) >= MOST_TRIES)
        return self.claims.pending.intersection(tried)

    def _position(self, completion: Completion) -> int:
        return self.position[completion.request.question_id, completion.request.trial]

    def _write(self, writer: AttemptWriter, wait_s: float = 0.0) -> None:
        """Write finished attempts, at most every `wait_s` seconds, and mark the durable ones."""
        if time.monotonic() - self._written_at >= wait_s:
            finished, self._finished, self._written_at = self._finished, [], time.monotonic()
            # If this process was suspended, another worker may have taken the claim.
            lost = [one for one in finished if self.claims.lost(self._position(one))]
            if lost:
                self.check()  # another folder may have replaced this one
            writer.append([row_of(one) for one in finished if one not in lost])
        for key in writer.durable():
            self.claims.durable(self.position[key])


def counts(completion: Completion) -> dict[str, int]:
    """Return what a finished attempt adds to the counts of its worker's session."""
    prompt = completion.request.prompt_token_ids
    return {
        "attempts": 1,
        "completion_tokens": completion.tokens or 0,
        "truncated": int(completion.finish_reason in CUT),
        "boxed": int("\\boxed" in completion.text),
        "prompt_tokens": len(prompt or ()) or completion.prompt_tokens or 0,
    }
