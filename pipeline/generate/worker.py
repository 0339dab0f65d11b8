"""One worker: it loads the engine, claims attempts, samples them and makes each durable."""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.console import Meter, note, warn
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import Interrupted, Replaced, TryAgain, UserError, one_line
from bayes_at_n.pipeline.config.seeds import attempt_seed
from bayes_at_n.pipeline.generate import stopping
from bayes_at_n.pipeline.generate.budget import Allowance
from bayes_at_n.pipeline.generate.claims import Claims
from bayes_at_n.pipeline.generate.continuing import Continued
from bayes_at_n.pipeline.generate.record import Session
from bayes_at_n.pipeline.generate.tidy import leave, tidy
from bayes_at_n.pipeline.generate.writer import AttemptWriter, row_of
from bayes_at_n.pipeline.prepare import questions_table
from bayes_at_n.pipeline.store import origin, runfolder, sessions, shards
from bayes_at_n.pipeline.store.columns import FINISHED
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.sessions import UNPROVEN, prove, suspects, unproven
from bayes_at_n.pipeline.workers import heartbeat, home
from bayes_at_n.pipeline.workers.heartbeat import Heartbeat, Watch

LINGER_S = 120.0  # an idle worker stays so long, should one that is busy die
MOST_TRIES = 3  # of an attempt that the engine gives back unfinished
_IDLE_S = 0.2
_PROMPTS_AT_ONCE = 64
_PROBE_S = 20.0  # the longest that a probe of a server may hold up all else


def work(run: Run, stop: stopping.StopFlag | None = None, replica: int | None = None) -> None:
    """Make attempts that the run owes until none is left that nobody else is at.

    `stop`: set by the caller when the worker is to stop; without it signals do that. `replica`: the
    number of this worker among those of one parent, which shows the progress.

    Raises:
        UserError: the disk is full or read-only. Moved: the run folder was deleted or renamed.
        TryAgain: the engine cannot be loaded, broke, or gave attempts back unfinished.
        Interrupted: the worker was asked to stop; finished attempts are kept.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(stopping.writable(run))
        check = stack.enter_context(home.staying(run.path, "attempts were sampled"))
        flag = stop or stack.enter_context(stopping.requests())
        session = Session(run, shards.worker_id(), replica)
        beat = stack.enter_context(Heartbeat(run.path, session.worker, check))
        watch = stack.enter_context(Watch(lambda seconds: _give_up(session, seconds)))
        watch.beats.append(beat)
        try:
            _Worker(run, session, beat, watch, flag, replica is None).work()
        except BaseException as error:
            check()  # the session's record went with the folder
            state = "stopped" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed"
            session.end(state, str(error) or type(error).__name__)
            if isinstance(error, Replaced):
                prove(run, good=False, own=session.worker)
                raise UserError(f"{error}. {suspects(run)}".strip()) from None
            raise
        session.end("done")
    leave(run)


def _give_up(session: Session, seconds: float) -> None:
    """The engine hangs: nothing but the end of the process frees its GPU."""
    try:
        session.end("failed", f"the engine did not answer for {seconds:.0f} s")
    finally:
        os._exit(heartbeat.HUNG)


class _Worker:
    """The engine, the claims and the writer of one process, while it samples."""

    def __init__(
        self,
        run: Run,
        session: Session,
        beat: Heartbeat,
        watch: Watch,
        stop: stopping.StopFlag,
        shown: bool,
    ) -> None:
        self.run, self.session, self.beat, self.stop, self.shown = run, session, beat, stop, shown
        self.watch = watch
        self.rows = {row["question_id"]: row for row in run.questions}
        self.keys = run.keys
        self.place = {key: position for position, key in enumerate(self.keys)}
        self.claims = Claims(beat, self._owed)
        self.continued = Continued(run)
        self.prompts = questions_table.prompts_of_trials(run)
        self.allowance = Allowance(run, session)
        self.flying = self.allowance.flying
        self.unfinished: dict[int, list[str]] = {}  # why the engine gave attempts back, each time
        self.busy = time.monotonic()  # when there was last something to do
        self.rounds = 3  # of asking the table whether all that is marked done is there
        self.probed = time.monotonic()

    def work(self) -> None:
        run = self.run
        tidy(run)
        runfolder.save(run, *runfolder.TRIALS)
        if not sessions.alive(run.path) - {self.session.worker}:
            heartbeat.clear(self.beat.path.parent, self.beat.now)
        owed = self.claims.read()
        if not owed and not runfolder.missing_prompt_logprobs(run) and not unproven(run):
            return
        if self.shown:
            note(f"loading {run.cfg.model.name} with {run.cfg.engine.name} ...")
        rows = list(self.rows.values())
        longest = max(len(row["prompt_token_ids"] or ()) + row["max_tokens"] for row in rows)
        try:
            with stopping.at_once(self.stop), self.watch.awaiting(heartbeat.LOAD_S):
                engine = engines.load(run.cfg, longest, rows)
        except stopping.StopNow:
            raise self._interrupted() from None
        try:
            self.beat.check()
            prove(run, good=True)
            self.session.loaded(owed, engine.describe())
            self._sample(engine)
            if not self.stop.signal_number:
                self._add_prompt_logprobs(engine)  # last: an engine may fail at them, and even die
                self._tell_unfinished()
        finally:
            # After Ctrl-C its processes may be gone already.
            with contextlib.suppress(Exception), self.watch.awaiting(heartbeat.LOAD_S):
                engine.close()

    def _owed(self) -> Iterator[int]:
        return (self.place[key] for key in runfolder.owed(self.run))

    def _add_prompt_logprobs(self, engine: engines.Engine) -> None:
        """One request a question, apart from its trials; what fails stays null, and is said."""
        if not runfolder.missing_prompt_logprobs(self.run):
            return
        path = self.run.path / sessions.CLAIMS / "prompts"
        with contextlib.suppress(lease.Taken), lease.held(path, "adding log-probs of prompts"):
            run = Run(self.run.cfg)  # another worker may have written them since
            missing, failed = runfolder.missing_prompt_logprobs(run), ""
            try:
                for start in range(0, len(missing), _PROMPTS_AT_ONCE):
                    rows = missing[start : start + _PROMPTS_AT_ONCE]
                    prompts = [row["prompt_token_ids"] for row in rows]
                    with self.watch.awaiting(heartbeat.silence_s(run.cfg.engine)):
                        values = engine.prompt_logprobs(prompts)
                    for row, logprobs in zip(rows, values, strict=True):
                        row["prompt_logprobs"] = logprobs
            except Exception as error:  # engines raise whatever their parts raise
                if isinstance(error, UserError) and not self.stop.signal_number:
                    raise
                missing, failed = [], one_line(error)
            if self.stop.signal_number:
                raise self._interrupted()
            if missing:
                self._probe(engine)
                self.beat.check()
                questions_table.write(run.path / "questions.parquet", run.questions)
            elif failed:
                with runfolder.settling(run):
                    failing = {runfolder.UNREADABLE: runfolder.reader(run)}
                    runfolder.write_json(run.manifest, runfolder.read_manifest(run) | failing)
                warn(
                    f"log-probs of prompts: the engine failed at them ({failed}); they stay null."
                    " With VLLM_USE_V2_MODEL_RUNNER=0, vLLM's other model runner, `run` tries again"
                )

    def _sample(self, engine: engines.Engine) -> None:
        self.beat.check()
        manifest = runfolder.check_same(self.run, runfolder.identity(self.run.cfg))
        ending, about = runfolder.ending(self.run), origin.about(manifest)
        of = kind(self.run.cfg.engine.name)
        ending += UNPROVEN * (of.served and not of.in_process)
        self.writer = AttemptWriter(
            self.run.attempts, self.session.worker, ending, about, self.beat.check
        )
        total = len(self.keys)
        meter = Meter("generate", total, total - self.claims.left, keep=True)
        with meter if self.shown else contextlib.nullcontext():
            try:
                with stopping.engine_errors(self.run, self._excused):
                    self._drive(engine, meter)
                sure = self._probe(engine, self.writer)
            finally:
                self._settle(self.writer.close)
                self._show(meter)
        if self.stop.signal_number:
            raise self._interrupted()
        if not sure and self.writer.written:
            raise TryAgain(
                f"{self.run.path}: the server did not answer at the end, so its model may have been"
                " another; the same command asks it, trust_parts=true takes the attempts as good"
            )

    def _probe(self, engine: engines.Engine, writer: AttemptWriter | None = None) -> bool:
        """Whether the model is known to be the run's still: then what was written is, too."""
        if writer is not None:
            writer.cut()
        same, self.probed = engine.same(_PROBE_S), time.monotonic()
        if same:
            prove(self.run, good=True, own=self.session.worker)
        return same

    def _drive(self, engine: engines.Engine, meter: Meter) -> None:
        for completion in self._completions(engine):
            if completion is not None:
                self._ended(completion)
                continue
            self.beat.check()
            self._settle(self.writer.tick)
            if self.stop.signal_number:
                return
            if engine.doubtful(time.monotonic() - self.probed):
                self._probe(engine, self.writer)
            state = "sampling" if self.flying else "waiting"
            self.session.tick(state, len(self.flying), self.claims.left, engine.usage())
            self._show(meter)

    def _completions(self, engine: engines.Engine) -> Iterator[engines.Completion | None]:
        """What the engine yields; only while it has control does its silence count."""
        answers = engine.generate(self._requests())
        try:
            while True:
                with self.watch.awaiting():
                    try:
                        answer = next(answers)
                    except StopIteration:
                        return
                yield answer
        finally:
            with self.watch.awaiting():
                answers.close()  # it may have to end what is under way

    def _interrupted(self) -> Interrupted:
        return stopping.interrupted(self.run, self.claims.left, self.stop.signal_number)

    def _requests(self) -> Iterator[engines.Request | None]:
        """What to make next, as long as there is something; None: nothing right now."""
        e = self.run.cfg.engine
        room = e.in_flight or 3 * e.batch_size
        while True:
            with self.watch.paused():
                begun = len(self.flying)
                most = min(room, begun + self.allowance.may_begin(room))
                position = self.claims.take(begun, most, e.batch_size)
                if position is None and not self.flying and self._nothing_left():
                    return
                request = None if position is None else self._request(position)
            yield request

    def _request(self, position: int) -> engines.Request:
        self.allowance.began(position)
        self.busy = time.monotonic()
        question_id, trial = self.keys[position]
        row = self.prompts(self.rows[question_id], trial)
        request = engines.Request(
            question_id=question_id,
            trial=trial,
            prompt_token_ids=row["prompt_token_ids"],
            messages=questions_table.messages(row),
            max_tokens=row["max_tokens"],
            seed=attempt_seed(self.run.cfg, question_id, trial),
        )
        return self.continued(request)

    def _nothing_left(self) -> bool:
        """Whether this worker may leave; waits a moment if not."""
        self._settle(self.writer.sync)
        if self.claims.left > len(self.claims.given_up):  # others are at it
            if self.allowance.over():
                return True
            if time.monotonic() - self.busy > LINGER_S and self.claims.steady():
                note(f"{self.claims.left} attempts are left to other workers, who are at them")
                return True
            time.sleep(_IDLE_S)
            return False
        self.rounds -= 1
        return self.rounds < 0 or self.claims.read() <= len(self.claims.given_up)

    def _ended(self, completion: engines.Completion) -> None:
        key = (completion.request.question_id, completion.request.trial)
        position = self.place[key]
        self.allowance.ended(position, completion)
        if self._lost(*key):
            return
        if completion.finish_reason in FINISHED:
            self.writer.put(row_of(completion))
            self.session.add(completion)
            return
        reasons = self.unfinished.setdefault(position, [])
        reasons.append(completion.finish_reason)
        self.session.unfinished(completion, len(reasons))
        if len(reasons) < MOST_TRIES:
            self.claims.again(position)
        else:
            self.claims.give_up(position)

    def _tell_unfinished(self) -> None:
        """Say what is owed because the engine does not finish it, unless another worker did."""
        if not self.claims.given_up or not self.claims.read():
            return
        reasons = [self.unfinished[position] for position in self.claims.given_up]
        if reasons:
            times = Counter(reason for each in reasons for reason in each)
            said = ", ".join(f"{reason} {n} times" for reason, n in times.most_common())
            raise TryAgain(
                f"engine={self.run.cfg.engine.name} gave {len(reasons)} attempts back unfinished,"
                f" each {MOST_TRIES} times ({said}). They are owed; finished attempts are kept, and"
                " the same command tries again"
            )

    def _settle(self, write: Callable[[], None]) -> None:
        """Hand what is finished to the disk, and only then call it done."""
        self.writer.drop(lambda row: self._lost(row["question_id"], row["trial"]))
        write()
        for key in self.writer.durable():
            self.claims.durable(self.place[key])

    def _lost(self, question_id: str, trial: int) -> bool:
        """Whether an attempt is another worker's by now, because this process was suspended."""
        lost = self.claims.lost(self.place[question_id, trial])
        if lost:
            self.session.log("dropped", question=question_id)
        return lost

    def _show(self, meter: Meter) -> None:
        if self.shown:
            meter.reach(len(self.keys) - self.claims.left, self.session.detail)

    def _excused(self, error: Exception) -> bool:
        """Ctrl-C reaches the engine's own processes too, which may fail before we stop."""
        if self.writer.error is not None:
            raise self.writer.error from error
        return bool(self.stop.signal_number)
