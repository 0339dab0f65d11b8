"""engine.replicas > 1: one worker a GPU (or a group of them) on this node, watched by this process.

Replicas share the run by claims like any workers, so nothing is divided here, and one that dies
disturbs nobody. They are processes of their own rather than vLLM's data parallel ranks, which
start, step and fail together.

Signals are this process's business. A terminal's Ctrl-C does not reach the replicas, which are in
process groups of their own; Slurm's signals reach everyone. So a replica takes any number of
requests to stop for one, and only this process quits at the second, and then kills.
"""

import time

from bayes_at_n.pipeline.base.console import Meter, note, warn
from bayes_at_n.pipeline.base.errors import TryAgain, UserError
from bayes_at_n.pipeline.generate import stopping
from bayes_at_n.pipeline.generate.budget import Allowance
from bayes_at_n.pipeline.generate.record import COUNTS, rate_and_shares
from bayes_at_n.pipeline.generate.replica_process import Replica
from bayes_at_n.pipeline.store import runfolder, sessions, shards
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import devices, heartbeat, home

MOST_IN_VAIN = 3  # processes in a row, of one replica, that made no attempt: it is given up
STOP_S = 60.0  # for writing what is finished; journals hold it already
LOOK_S = 0.5


def supervise(run: Run) -> None:
    """Generate with `engine.replicas` workers, each a process with devices of its own.

    A replica that dies or hangs is started again, until three processes in a row have made nothing;
    the others go on. Raises UserError: when there are too few GPUs, for what a replica raises, or
    when all are given up and attempts are still owed. Interrupted: after a signal; finished
    attempts are kept.
    """
    folder, name = run.path / "logs", shards.worker_id()
    replicas = [
        Replica(number, share, folder / f"{name}-{number}.stderr")
        for number, share in enumerate(devices.shares(run.cfg))
    ]
    total, left = len(run.keys), len(runfolder.owed(run))
    note(f"loading {run.cfg.model.name} with {run.cfg.engine.name}, {len(replicas)} replicas ...")
    with (
        stopping.writable(run),
        home.staying(run.path, "attempts were sampled") as check,
        stopping.requests() as stop,
        Meter("generate", total, total - left, keep=True) as meter,
    ):
        try:
            before, told = None, ""
            while left != before and not stop.signal_number:  # once more if a healthy one had left
                before = left
                _generate(run, replicas, stop, meter, check)
                left = len(runfolder.owed(run))
                meter.reach(total - left, lambda: _detail(replicas, meter))
                if not left or sessions.alive(run.path) or (told := Allowance(run).told()):
                    break
        finally:
            for replica in replicas:
                replica.end()
    if stop.signal_number:
        raise stopping.interrupted(run, left, stop.signal_number)
    _conclude(run, replicas, 0 if told else left)


def _generate(
    run: Run, replicas: list[Replica], stop: stopping.StopFlag, meter: Meter, check: home.Check
) -> None:
    """Let every replica work that is not given up, until all have ended."""
    total = len(run.keys)
    for replica in replicas:
        if not replica.failed:
            replica.start(run)
    looked, asked = time.monotonic(), 0.0  # for heartbeats; when replicas were asked to stop
    while any(replica.process for replica in replicas):
        time.sleep(LOOK_S)
        check()
        said = sessions.sessions(run.path)
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
            code = replica.ended(run)
            if asked and code == UserError.exit_code:
                warn(f"replica {replica.number}: {replica.error}")
            elif code and not asked:
                _restart(run, replica, code)
        if not asked:
            _retry_failed_loads(run, replicas)
            if time.monotonic() - looked >= heartbeat.HEARTBEAT_S:
                looked = time.monotonic()
                _kill_silent(run, replicas)
        elif time.monotonic() - asked > STOP_S:
            for replica in replicas:
                replica.kill("it did not stop")
        if not any(replica.loaded for replica in replicas):
            meter.started = time.monotonic()  # loading tells nothing about the time left
        left = min(replica.record.get("left", total) for replica in replicas)
        meter.reach(max(meter.done, total - left), lambda: _detail(replicas, meter))


def _restart(run: Run, replica: Replica, code: int) -> None:
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
    replica.start(run)


def _kill_silent(run: Run, replicas: list[Replica]) -> None:
    """Kill replicas that live and do nothing: their heartbeat has stopped."""
    alive, now = sessions.alive(run.path), time.monotonic()
    for replica in replicas:
        worker = replica.record.get("worker")
        if worker is None or worker in alive or replica.record["ended"]:
            replica.silent_since = None
        elif replica.silent_since is None:
            # A whole machine may have slept: then the heartbeat is back in a moment. And a
            # worker that has done its work takes its heartbeat away before it ends.
            replica.silent_since = now
        elif now - replica.silent_since > 2 * heartbeat.HEARTBEAT_S:
            replica.kill("its heartbeat stopped")


def _retry_failed_loads(run: Run, replicas: list[Replica]) -> None:
    """An error while loading that the others do not have is no error of the user's.

    Memory of a GPU that is not free yet, two processes that met in a cache: worth another try.
    """
    others = any(replica.process and replica.loaded for replica in replicas)
    for replica in replicas if others else ():
        again = 0 < replica.starts_in_vain < MOST_IN_VAIN
        if replica.failed and not replica.loaded and again:
            warn(f"replica {replica.number}: {replica.failed}\n  others could load: once more")
            replica.start(run)


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


def _conclude(run: Run, replicas: list[Replica], left: int) -> None:
    """Say what was not in order; an error where attempts are owed that nobody makes."""
    failures = [replica.failed for replica in replicas if replica.failed]
    reasons, given_up = list(dict.fromkeys(failures)), len(failures)
    others = sessions.alive(run.path)
    if left and (given_up == len(replicas) or not others):
        kind = UserError if all(replica.code == 2 for replica in replicas) else TryAgain
        raise kind(
            "; ".join(reasons or ["no replica found anything to do"])
            + f" ({given_up} of {len(replicas)} replicas were given up; {left} of {len(run.keys)}"
            " attempts are still owed)"
        )
    for reason in reasons:
        warn(f"{given_up} of {len(replicas)} replicas were given up: {reason}")
