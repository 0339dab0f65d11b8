"""engine.replicas > 1: one worker a GPU (or a group of them) on this node, watched by this process.

Replicas share the run by claims like any workers, so nothing is divided here, and one that dies
disturbs nobody. They are processes of their own rather than vLLM's data parallel ranks, which
start, step and fail together.

Signals are this process's business. A terminal's Ctrl-C does not reach the replicas, which are in
process groups of their own; Slurm's signals reach everyone. So a replica takes any number of
requests to stop for one, and only this process quits at the second, and then kills.
"""

import time
from collections.abc import Sequence

from bayes_at_n.pipeline.base.console import Meter, counted, note, warn
from bayes_at_n.pipeline.base.errors import TryAgain, UserError
from bayes_at_n.pipeline.generate import race
from bayes_at_n.pipeline.generate.budget import Allowance
from bayes_at_n.pipeline.generate.record import COUNTS, rate_and_shares
from bayes_at_n.pipeline.generate.replica_process import Replica
from bayes_at_n.pipeline.store import sessions, shards
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import devices, heartbeat, home, stopping

MOST_IN_VAIN = 3  # processes in a row, of one replica, that made no attempt: it is given up
STOP_S = 60.0  # for writing what is finished; journals hold it already
LOOK_S = 0.5


def supervise(runs: Sequence[Run]) -> None:
    """Generate with `engine.replicas` workers, each a process with devices of its own.

    A replica that dies or hangs is started again, until three processes in a row have made nothing;
    the others go on. `runs`: of one engine, with the same settings of it. Raises UserError: when
    there are too few GPUs, for what a replica raises, or when all are given up and attempts are
    still owed. Interrupted: after a signal; finished attempts are kept.
    """
    first = runs[0]
    folder, name = first.path / "logs", shards.worker_id()
    replicas = [
        Replica(number, share, folder / f"{name}-{number}.stderr")
        for number, share in enumerate(devices.shares(first.cfg))
    ]
    total, left = sum(len(run.keys) for run in runs), owed_by(runs)
    of = f"{counted(len(replicas), 'replica')}, {counted(len(runs), 'run')}"
    note(f"loading {first.cfg.model.name} with {first.cfg.engine.name}, {of} ...")
    with (
        stopping.writable(first),
        home.staying(first.path, "attempts were sampled") as check,
        stopping.requests() as stop,
        Meter("generate", total, total - left, keep=True) as meter,
    ):
        try:
            before, told = None, False
            while left != before and not stop.signal_number:  # once more if a healthy one had left
                before = left
                _generate(runs, replicas, stop, meter, check)
                left = owed_by(runs)
                meter.reach(total - left, lambda: _detail(replicas, meter))
                alive = any(sessions.alive(run.path) for run in runs)
                if alive or (told := not left or all(map(is_over, runs))):
                    break
        finally:
            for replica in replicas:
                replica.end()
    if stop.signal_number:
        raise stopping.interrupted(runs, left, stop.signal_number)
    _conclude(runs, replicas, 0 if told else left)


def owed_by(runs: Sequence[Run]) -> int:
    """Count the attempts that runs owe."""
    return sum(len(race.pending(run)) for run in runs)


def is_over(run: Run) -> bool:
    """Return whether a run owes nothing, or nothing that its budget allows."""
    return not race.pending(run) or bool(Allowance(run).told())


def _generate(
    runs: Sequence[Run],
    replicas: list[Replica],
    stop: stopping.StopFlag,
    meter: Meter,
    check: home.Check,
) -> None:
    """Let every replica work that is not given up, until all have ended."""
    for replica in replicas:
        if not replica.failed:
            replica.start(runs)
    looked, asked = time.monotonic(), 0.0  # for heartbeats; when replicas were asked to stop
    while any(replica.process for replica in replicas):
        time.sleep(LOOK_S)
        check()
        said = [sessions.sessions(run.path) for run in runs]
        for replica in replicas:
            replica.read(said)
        if stop.signal_number and not asked:
            asked = time.monotonic()
            for replica in replicas:
                if replica.loaded:
                    replica.signal(stop.signal_number)
                else:
                    replica.kill("nothing to save yet")
        for replica in replicas:
            code = replica.ended(runs)
            if asked and code == UserError.exit_code:
                warn(f"replica {replica.number}: {replica.error}")
            elif code and not asked:
                _restart(runs, replica, code)
        if not asked:
            _retry_failed_loads(runs, replicas)
            if time.monotonic() - looked >= heartbeat.HEARTBEAT_S:
                looked = time.monotonic()
                _kill_silent(runs, replicas)
        elif time.monotonic() - asked > STOP_S:
            for replica in replicas:
                replica.kill("it did not stop")
        if not any(replica.loaded for replica in replicas):
            meter.started = time.monotonic()  # loading tells nothing about the time left
        _show(runs, replicas, meter)


def _show(runs: Sequence[Run], replicas: list[Replica], meter: Meter) -> None:
    """Of every run what the replica says that knows most."""
    said = zip(*(replica.records for replica in replicas if replica.records), strict=True)
    lefts = [[record["left"] for record in records if "left" in record] for records in said]
    left = sum(min(left, default=len(run.keys)) for run, left in zip(runs, lefts, strict=False))
    if any(lefts):
        meter.reach(max(meter.done, meter.total - left), lambda: _detail(replicas, meter))


def _restart(runs: Sequence[Run], replica: Replica, code: int) -> None:
    """Start it again, unless that has been in vain before or the user must do something."""
    replica.code = code
    ending = replica.how_it_ended(code)
    if code == UserError.exit_code or (replica.error and not replica.loaded):
        replica.failed = replica.error or ending
        return
    if replica.starts_in_vain >= MOST_IN_VAIN:
        replica.failed = f"{ending}\n  given up after {MOST_IN_VAIN} times without an attempt"
        return
    warn(f"{ending}\n  starting it again")
    replica.start(runs)


def _kill_silent(runs: Sequence[Run], replicas: list[Replica]) -> None:
    """Kill replicas that live and do nothing: their heartbeat has stopped."""
    alive, now = [sessions.alive(run.path) for run in runs], time.monotonic()
    for replica in replicas:
        silent = [
            record and not record["ended"] and record["worker"] not in names
            for record, names in zip(replica.records, alive, strict=False)
        ]
        if not any(silent):
            replica.silent_since = None
        elif replica.silent_since is None:
            # A whole machine may have slept: then the heartbeat is back in a moment. And a
            # worker that has done its work takes its heartbeat away before it ends.
            replica.silent_since = now
        elif now - replica.silent_since > 2 * heartbeat.HEARTBEAT_S:
            replica.kill("its heartbeat stopped")


def _retry_failed_loads(runs: Sequence[Run], replicas: list[Replica]) -> None:
    """An error while loading that the others do not have is no error of the user's.

    Memory of a GPU that is not free yet, two processes that met in a cache: worth another try.
    """
    others = any(replica.process and replica.loaded for replica in replicas)
    for replica in replicas if others else ():
        again = 0 < replica.starts_in_vain < MOST_IN_VAIN
        if replica.failed and not replica.loaded and again:
            warn(f"replica {replica.number}: {replica.failed}\n  others could load: once more")
            replica.start(runs)


def _detail(replicas: list[Replica], meter: Meter) -> str:
    """Rates and shares for the progress line."""
    attempts, tokens, boxed, truncated = (
        sum(replica.total(count) for replica in replicas) for count in COUNTS
    )
    running = [replica for replica in replicas if replica.process]
    loading = sum(not replica.loaded for replica in running)
    parts = []
    if attempts:
        rate = tokens / max(time.monotonic() - meter.started, 1e-9)
        parts = [rate_and_shares(rate, attempts, boxed, truncated)]
    if running:
        parts.append(f"{len(running) - loading} of {len(replicas)} replicas")
    return ", ".join(parts + [f"{loading} loading"] * bool(loading))


def _conclude(runs: Sequence[Run], replicas: list[Replica], left: int) -> None:
    """Say what was not in order; an error where attempts are owed that nobody makes."""
    failures = [replica.failed for replica in replicas if replica.failed]
    reasons, given_up = list(dict.fromkeys(failures)), len(failures)
    others = any(sessions.alive(run.path) for run in runs)
    if left and (given_up == len(replicas) or not others):
        kind = UserError if all(replica.code == 2 for replica in replicas) else TryAgain
        raise kind(
            "; ".join(reasons or ["no replica found anything to do"])
            + f" ({given_up} of {len(replicas)} replicas were given up; {left} of"
            f" {sum(len(run.keys) for run in runs)} attempts are still owed)"
        )
    for reason in reasons:
        warn(f"{given_up} of {len(replicas)} replicas were given up: {reason}")
