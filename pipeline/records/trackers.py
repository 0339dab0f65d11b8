"""Send a run's settings, scores and avg@n by trials to an experiment tracker.

One function each, with one interface, for wandb 0.31, mlflow 3.17 and trackio 0.43, whose libraries
may hang: a process beside a command sends its progress.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.children import SIGNALS
from bayes_at_n.pipeline.base.console import console, note, substep, warn
from bayes_at_n.pipeline.base.errors import TryAgain, UserError, install, one_line
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.compare.differences import PROTOCOL, flat, public, sampling_known
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.records.exporting import Export
from bayes_at_n.pipeline.score.stage import scored
from bayes_at_n.pipeline.store import outcomes, provenance, runfolder, selection
from bayes_at_n.pipeline.store.runfolder import Run, open_run
from bayes_at_n.scoring.metrics.table import parse

AXES = ("attempts", "trials", "steps")  # of curves, which are named AXIS/...
_PRIVATE = ("cluster.", "engine.url", "verifier.engine.url", "run_dir", "track.", "trust")
_SCORES = ("headline", "attempts", "trials", "questions", "shares", "cost")
Values = dict[str, float]
EVERY_S = 10.0  # between two points, at least; also at least nine times as long as a poll
GRACE_S = 15.0  # to send the rest after the command has ended


class Tracker(NamedTuple):
    """An open run of a tracker."""

    address: str  # printed
    point: Callable[[Values, int], None]  # logs values of curves at a position on their axis
    close: Callable[[Values, bool], None]  # logs the final scores; whether the run succeeded


def send(export: Export, folder: Path) -> None:
    """Send runs to the tracker `to`; write addresses to `sent.json`. Raises TryAgain: it failed."""
    to, sent = export.cfg.to, {}
    for source in export.sources:
        try:
            with contextlib.redirect_stdout(sys.stderr), substep():  # libraries print
                scores, read, *_ = scored(source.run)
                tracker = begin(to, source.run, export.cfg.project)
                for point in curve(read.codes, scores["confidence"]):
                    tracker.point(*point)
                tracker.close(final(scores), True)
        except UserError:
            raise
        except Exception as error:  # a library may raise anything
            raise TryAgain(f"to={to}: {one_line(error)}; repeat the command") from error
        sent[str(source.run.path)] = tracker.address
        note(f"{to}: {tracker.address}")
        export.meter.advance(source.table.num_rows)
    runfolder.write_json(folder / "sent.json", sent)


def begin(tracker: str, run: Run, project: str) -> Tracker:
    """Start or resume a run in a tracker. Raises UserError: no library; and its errors."""
    name, manifest = "/".join(run.path.resolve().parts[-2:]), runfolder.read_manifest(run)
    key = [manifest.get(provenance.HASH), manifest.get("created_with"), name]  # differs for copies
    values = config(run.cfg)
    if not sampling_known(run):
        values = {k: v for k, v in values.items() if not k.startswith((*PROTOCOL, "model.dtype"))}
    return open_in(tracker, project, name, provenance.short_hash(json.dumps(key)), values)


def open_in(tracker: str, project: str, name: str, key: str, values: dict[str, Any]) -> Tracker:
    """Start or resume what has this key, with settings. Raises UserError: no library."""
    try:
        return _OPEN[tracker](project, name, key, values)
    except (ImportError, AttributeError) as why:
        raise UserError(f"{tracker}: missing or too old ({why}); {install(tracker)}") from why


def config(cfg: RunConfig) -> dict[str, Any]:
    """Return settings by dotted keys, without addresses and secrets."""
    return {k: v for k, v in public(asdict(cfg)).items() if not k.startswith(_PRIVATE)}


def numbers(values: Mapping[str, Any]) -> Values:
    """Return all numbers in nested values by path, with names that every tracker accepts.

    >>> numbers({"pass@8": {"value": 0.5, "low": 0.25}, "run": "runs/a"})
    {'pass_at_8/value': 0.5, 'pass_at_8/low': 0.25}
    """
    every = flat(values, "/")
    return {re.sub("[@^]", "_at_", k): v for k, v in every if isinstance(v, int | float)}


def final(scores: Mapping[str, Any]) -> Values:
    """Return metrics with intervals, shares of outcomes and cost from `scores.json`."""
    return numbers({k: scores[k] for k in _SCORES if k in scores} | scores.get("metrics", {}))


def curve(codes: outcomes.Codes, confidence: float) -> Iterator[tuple[Values, int]]:
    """Yield avg@n of the first n trials, n = 1..N, with its interval, from outcomes (M, N)."""
    for trials in range(1, codes.shape[1] + 1):
        first = codes[:, :trials]
        if len(begun := first[(first != outcomes.PENDING).any(axis=1)]):
            score = parse("avg").summary(outcomes.correct(begun), confidence)._asdict()
            yield numbers({"trials": {"avg": score}}) | {"trials": trials}, trials


def _wandb(project: str, name: str, key: str, config: dict[str, Any]) -> Tracker:
    import wandb

    plain = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True)
    run = wandb.init(project=project, name=name, id=key, resume="allow", settings=plain)
    run.config.update(config, allow_val_change=True)
    for axis in AXES:
        run.define_metric(f"{axis}/*", step_metric=axis)

    def close(scores: Values, well: bool) -> None:
        run.summary.update(scores)
        run.finish(exit_code=int(not well))

    return Tracker(run.dir if run.offline else run.url, lambda v, _: run.log(v), close)


def _mlflow(project: str, name: str, key: str, config: dict[str, Any]) -> Tracker:
    import mlflow

    mlflow.set_experiment(project)
    by, tag = {"max_results": 1, "output_format": "list"}, "bayes_at_n"
    known = mlflow.search_runs(filter_string=f"tags.{tag} = '{key}'", **by)
    run = mlflow.start_run(known[0].info.run_id if known else None, run_name=name, tags={tag: key})
    texts, before = {key: str(value)[:6000] for key, value in config.items()}, run.data.params
    mlflow.log_params({key: text for key, text in texts.items() if key not in before})
    mlflow.set_tags({key: text for key, text in texts.items() if before.get(key, text) != text})

    def close(scores: Values, well: bool) -> None:
        mlflow.log_metrics(scores, step=int(scores.get("attempts", 0)))
        mlflow.end_run("FINISHED" if well else "KILLED")

    return Tracker(f"{project}: {name}", lambda v, step: mlflow.log_metrics(v, step=step), close)


def _trackio(project: str, name: str, key: str, config: dict[str, Any]) -> Tracker:
    import trackio

    name = f"{name} {key[:6]}"  # its only identifier of a run
    trackio.init(project, name, config=config, resume="allow")

    def close(scores: Values, well: bool) -> None:
        trackio.log(scores, step=int(scores.get("attempts", 0)))
        trackio.finish()

    return Tracker(name, lambda values, step: trackio.log(values, step=step), close)


_OPEN = {"wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio}


@contextlib.contextmanager
def tracked(run: Run) -> Iterator[None]:
    """Show a run in trackers while the block works on it; wait at most GRACE_S at the end."""
    names, succeeded = [*dict.fromkeys(run.cfg.track.to)], False
    command = [sys.executable, "-m", __name__, str(run.path), run.cfg.track.project]
    kwargs: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    kwargs["env"] = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    kwargs["start_new_session"] = True  # so that Ctrl-C reaches this process only
    followers: list[Any] = [subprocess.Popen([*command, name], **kwargs) for name in names]
    try:
        yield
        succeeded = True
    finally:
        for process in followers:
            with contextlib.suppress(OSError), process.stdin:
                process.stdin.write(b"+" * succeeded)
        until = time.monotonic() + GRACE_S
        for name, process in zip(names, followers, strict=True):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            if process.returncode != 0:
                _warn(name, run.path, f"not all was sent within {GRACE_S:.0f} s (no network?)")
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # with processes of its library


def _warn(name: str, folder: Path, how: str) -> None:
    remedy = f"`{PROGRAM} export {folder} to={name}` sends it when it is done"
    warn(f"track={name}: {how.rstrip('.')}. The run is not affected; {remedy}")


def main() -> None:
    """Follow a run until standard input ends; a byte on it means that the command succeeded."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    folder, project, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    over, well, last = Event(), Event(), False

    def listen() -> None:
        if os.read(0, 1):
            well.set()
        over.set()
        time.sleep(2 * GRACE_S)
        os.killpg(0, signal.SIGKILL)  # the parent, which should do it, may have been killed

    Thread(target=listen, daemon=True).start()
    os.nice(10)
    console.file = os.fdopen(os.dup(2), "w")
    os.dup2(1, 2)  # discard what libraries print
    held = folder / f"track-{name}.lease", f"showing it in {name}"
    while not last:  # another process may follow it, or the folder does not exist yet
        last = over.is_set()
        with contextlib.suppress(lease.Taken, FileNotFoundError), lease.held(*held):
            return follow(folder, project, name, over, well)
        over.wait(lease.WAIT_S)


def follow(folder: Path, project: str, name: str, over: Event, well: Event) -> None:
    """Send new progress until the command is `over`, then the scores if it ended `well`."""
    from bayes_at_n.pipeline.status.watch import Observer  # not needed in the command's process

    if name == "trackio":  # it warns instead of raising
        warnings.showwarning = lambda message, *_: _warn(name, folder, str(message))
    observer = Observer(lambda: [folder] * selection.is_run(folder))
    tracker, sent, ended = None, 0, False
    try:
        while not ended:
            ended, began = over.is_set(), time.monotonic()
            for now in observer.poll():
                if now.fault is not None or (ended and not (tracker or well.is_set())):
                    continue  # the folder may not be this run's yet
                if tracker is None:
                    tracker = begin(name, open_run(folder), project)
                    note(f"track={name}: {tracker.address}")
                if now.done > sent:
                    values = numbers({"attempts": now.record()})
                    tracker.point(values | {"attempts": now.done}, sent := now.done)
                if ended:
                    scores = runfolder.read_json(folder / "scores.json")
                    tracker.close(final(scores) if well.is_set() else {}, well.is_set())
            over.wait(max(EVERY_S if tracker else 1.0, 9 * (time.monotonic() - began)))
    except Exception as error:  # a library may raise anything
        _warn(name, folder, one_line(error))


if __name__ == "__main__":
    main()
