"""trajectory watch=FOLDER: evaluate the checkpoints of a training as they appear.

A checkpoint is complete if the headers of its files agree with their sizes and its index, and two
looks, `watch.every` seconds apart, find the same files with the same sizes and times: a trainer
writes the rest of a folder after the weights. `OUT/watch.json` lists the checkpoints that were
complete once, so those that the trainer deletes later stay in the curves; all else is in the run
folders, so a command that was killed continues where it was.
"""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.console import note, percent, warn, warnings_once
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.config.multirun import Request, TrajectoryConfig
from bayes_at_n.pipeline.display.table import CHANCE, Table, columns, formatted
from bayes_at_n.pipeline.records import trackers
from bayes_at_n.pipeline.records.trackers import Tracker
from bayes_at_n.pipeline.store import provenance, runfolder
from bayes_at_n.pipeline.store.selection import natural
from bayes_at_n.pipeline.training import checkpoints, evaluate, stability, tracks, windows
from bayes_at_n.pipeline.training.cells import Row, records
from bayes_at_n.pipeline.training.checkpoints import MANIFEST, Checkpoint
from bayes_at_n.pipeline.training.tracks import AVERAGE, Tokens, Track
from bayes_at_n.pipeline.training.windows import Evaluation, Series, Training, Window
from bayes_at_n.pipeline.workers import spent
from bayes_at_n.pipeline.workers.resident import Residents
from bayes_at_n.pipeline.workers.spent import Spent
from bayes_at_n.scoring.ranking.trajectory import monotone_tau

Signature = tuple[tuple[str, int, int], ...]
STATE = "watch.json"


def signature(folder: Path) -> Signature | None:
    """Return names, sizes and times of a checkpoint's files; None if its weights are not whole."""
    try:
        if (folder / MANIFEST).exists() or checkpoints.problem(folder):
            return None
        checkpoints.read_json(folder / "config.json")
        checkpoints.read_weights(folder)
        stats = [(path, path.stat()) for path in sorted(folder.rglob("*"))]
    except (OSError, UserError):  # still written, or being deleted
        return None
    return tuple((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats)


class Watch:
    """A training that is watched: the checkpoints seen so far, and their evaluations."""

    def __init__(self, request: Request[TrajectoryConfig]) -> None:
        self.request, self.cfg = request, request.cfg
        self.folder = Path(request.cfg.watch.folder or "").expanduser().resolve()
        first = self._plan([Checkpoint(self.folder / "0", "0", 0)])
        self.out, self.base = first.out, first.evaluations[0].run.cfg
        self.out.mkdir(parents=True, exist_ok=True)
        state = runfolder.read_json(self.out / STATE)
        self.known = [
            Checkpoint(self.folder / name, name, step)
            for name, step in state.get("checkpoints", [])
        ]
        self.reported = {tuple(key) for key in state.get("reported", [])}  # dataset, window, step
        self.series: Series | None = None
        self.work: evaluate.Work = {}
        self.costs: dict[Path, Spent] = {}  # by run folder
        self._looks: dict[Path, Signature] = {}
        self._left_out = set[object]()

    @property
    def step(self) -> int:
        """The step of the newest checkpoint; -1 without any."""
        return int(self.known[-1].step or 0) if self.known else -1

    def save(self) -> None:
        """Write the state, which a killed command continues from."""
        seen = [[checkpoint.name, checkpoint.step] for checkpoint in self.known]
        state = {"checkpoints": seen, "reported": sorted(self.reported)}
        runfolder.write_json(self.out / STATE, state)

    def _plan(self, known: Sequence[Checkpoint]) -> Series:
        steps = [checkpoint.step or 0 for checkpoint in known]
        return windows.plan(self.request, [Training("", [*known], steps)])

    def look(self) -> None:
        """Add the checkpoints that are complete, in the order of their steps."""
        before, self._looks = self._looks, {}
        names = {checkpoint.name for checkpoint in self.known}
        folders = [path for path in self.folder.glob("[!.]*") if path.name not in names]
        for path in sorted(folders, key=lambda path: natural(path.name)):
            if (now := signature(path)) is None:
                continue
            self._looks[path] = now
            if before.get(path) == now:
                [found] = checkpoints.find([str(path)])
                late = found.step is None or found.step <= self.step
                if late or not windows.NAME.fullmatch(path.name):
                    why = f"{path.name}: its name has no step after {self.step}, or odd characters"
                    self._leave_out(path, why)
                    continue
                self.known.append(found)
                self.save()
                self.series = None
        if self.series is None and self.known:
            self.series = self._plan(self.known)
            for e in self.series.evaluations:
                if e.run.path not in self.work:
                    whole = all(path.is_dir() for path in e.window.sources)
                    weights = evaluate.weights if whole else lambda _: None  # nothing to compare
                    questions = self.series.questions[e.dataset]
                    self.work[e.run.path] = evaluate.remaining(e, questions, weights)
                    self.costs[e.run.path] = spent.spent([e.run])

    def models(self) -> list[list[Evaluation]]:
        """List the evaluations of each model, by step and then by size of the window."""
        by_window: dict[Window, list[Evaluation]] = {}
        for e in self.series.evaluations if self.series else ():
            by_window.setdefault(e.window, []).append(e)
        return sorted(by_window.values(), key=lambda of: (of[0].window.step, of[0].window.size))

    def next(self) -> list[Evaluation]:
        """Return the unfinished evaluations of the first model that has some and can be loaded."""
        for evaluations in self.models():
            unfinished = [e for e in evaluations if not self.work[e.run.path].finished]
            window = evaluations[0].window
            if not unfinished or window in self._left_out:
                continue
            if all(path.is_dir() for path in window.sources):
                return unfinished
            self._leave_out(window, f"{window.name}: a checkpoint was deleted before its turn")
        return []

    def _leave_out(self, key: object, why: str) -> None:
        if key not in self._left_out:
            self._left_out.add(key)
            warn(f"left out: {why}")

    def exhausted(self) -> str:
        """Return what was spent, if that reaches the budget of all runs together; else empty."""
        cfg, total = self.base, spent.added(self.costs.values())
        over = cfg.budget.past or not all(spent.left(cfg, total).values())
        return spent.in_words(spent.account(cfg, total)) if over else ""

    def evaluate(self, residents: Residents, unfinished: Sequence[Evaluation]) -> None:
        """Run the evaluations of one model, each with what is left of the budget."""
        window = unfinished[0].window
        note(f"evaluating {window.name}")
        for e in unfinished:
            if self.exhausted():
                return
            others = spent.added(of for path, of in self.costs.items() if path != e.run.path)
            left = [f"budget.{key}={of}" for key, of in spent.left(self.base, others).items()]
            assert self.series is not None
            failed = evaluate.evaluate_model(
                residents, self.series, [e], self.work, [*left, "track.to=[]"]
            )
            self.costs[e.run.path] = spent.spent([e.run])
            if failed and not self.exhausted():
                why = f"exit status {failed[e.run.path]}, {self.work[e.run.path]}"
                self._leave_out(window, f"{e.run.path}: {why}; the same command tries again")
        if not self.cfg.merge.keep and all(self.work[e.run.path].finished for e in unfinished):
            evaluate.remove(window)

    def finished(self) -> list[Evaluation]:
        """List the evaluations of the models all of whose runs are finished."""
        done = [of for of in self.models() if all(self.work[e.run.path].finished for e in of)]
        return [e for of in sorted(done, key=lambda of: of[0].window.size) for e in of]

    def points(self, tracks: Sequence[Track]) -> list[Row]:
        """Return a row for each dataset and model, in the order of training, with its cost."""
        costs: dict[tuple[str, int, int], list[Spent]] = {}
        for e in self.finished():
            dataset = windows.benchmark_of(e.dataset) if self.cfg.suite else e.dataset
            key = (dataset, e.window.size, e.window.step)
            costs.setdefault(key, []).append(self.costs[e.run.path])
        rows: list[Row] = []
        for track in tracks:
            scores, steps = track.summary(AVERAGE, self.cfg.confidence), track.steps.tolist()
            paid = [costs[track.dataset, track.window, step] for step in steps]
            cells = {
                "step": steps,
                "name": track.names,
                **scores._asdict(),
                **stability.changes(track, scores, self.cfg.confidence),
                "tau": [None, *(monotone_tau(scores.value[:n]) for n in range(2, len(steps) + 1))],
                "tokens": [sum(of.tokens for of in runs) for runs in paid],
                "seconds": [sum(of.device_s for of in runs) for runs in paid],
                "cost": [sum(self._price(of, track.R.shape[1]) for of in runs) for runs in paid],
            }
            rows += records(cells, dataset=track.dataset, window=track.window)
        return sorted(rows, key=lambda row: (row["step"], row["window"]))

    def _price(self, run: Spent, questions: int) -> float:
        n = max(1, run.attempts)
        each = Tokens(run.prompt_tokens / n, run.tokens / n)
        return tracks.evaluation_cost(each, questions, n / questions, self.cfg.prices) or 0.0

    @contextlib.contextmanager
    def reporting(self) -> Iterator[Callable[[Sequence[Row]], None]]:
        """Yield a function that prints the points that are new, and sends them to the trackers."""
        opened: dict[str, Tracker] = {}

        def report(rows: Sequence[Row]) -> None:
            for row in rows:
                if (key := (row["dataset"], row["window"], row["step"])) in self.reported:
                    continue
                shown = [c for c in table([row], self.cfg).columns if row[c.key] is not None]
                note(", ".join(f"{c.title} {formatted(c, row[c.key])}" for c in shown))
                name = f"steps/{row['dataset']}/merge_{row['window']}"
                values = {f"{name}/{k}": v for k, v in row.items() if isinstance(v, int | float)}
                for to in self.base.track.to:
                    try:
                        with contextlib.redirect_stdout(sys.stderr):  # libraries print
                            if to not in opened:
                                opened[to] = self._open(to)
                            opened[to].point({**values, "steps": row["step"]}, row["step"])
                    except Exception as error:  # a library may raise anything
                        warn(f"track={to}: {one_line(error)}")
                self.reported.add(key)
            self.save()

        try:
            yield report
        finally:
            for tracker in opened.values():
                with contextlib.suppress(Exception), contextlib.redirect_stdout(sys.stderr):
                    tracker.close({}, True)

    def _open(self, to: str) -> Tracker:
        key = provenance.short_hash(str(self.out.resolve()))
        name = "/".join(self.out.resolve().parts[-3:])
        tracker = trackers.open_in(
            to, self.base.track.project, name, key, trackers.config(self.base)
        )
        note(f"track={to}: {tracker.address}")
        return tracker


def table(rows: Sequence[Mapping[str, Any]], cfg: TrajectoryConfig) -> Table:
    """Tabulate the points of a training that is watched."""
    heads = [
        *columns(step="step"),
        *columns(align="left", name="checkpoint", dataset="dataset"),
        *columns(window="window"),
        *columns("{:.3f}", value="score", low="low", high="high"),
        *columns("{:+.3f}", change="change"),
        *columns("{:+.2f}", z="z"),
        *columns(CHANCE, probability="P(rise)"),
        *columns(real="real"),
        *columns("{:.3f}", tau="τ so far"),
        *columns("{:,.0f}", tokens="tokens", seconds="device s"),
        *columns("{:.4g}", cost="cost"),
    ]
    notes = [
        f"real: the {percent(cfg.confidence)} interval of the change from the step before excludes"
        " 0; cost: of all attempts, by `prices`"
    ]
    return Table("points", heads, rows, notes)


def watch(request: Request[TrajectoryConfig]) -> None:
    """Evaluate checkpoints as they appear, until `watch.last`, a budget, or a signal.

    Raises UserError: invalid settings; a run folder that holds something else. Unfinished: stopped.
    """
    cfg, over, shown = request.cfg, False, 0
    with warnings_once() as warnings, Residents() as residents:
        seen = Watch(request)
        note(f"watching {seen.folder}; results: {seen.out / 'index.html'}")
        with seen.reporting() as report:
            while not over:
                seen.look()
                if not seen.exhausted() and (unfinished := seen.next()):
                    seen.evaluate(residents, unfinished)
                why, unfinished = seen.exhausted(), seen.next()
                over = bool(why) or (not unfinished and seen.step >= (cfg.watch.last or math.inf))
                done = seen.finished()
                if seen.series and (len(done) > shown or (done and over)):
                    series = replace(seen.series, evaluations=done)
                    curves, shown = stability.read(series, request), len(done)
                    rows, again = seen.points(curves), 0 if over else cfg.watch.every
                    points = {"points": table(rows, cfg)}
                    tables = stability.save(curves, request, series, warnings, points, again)
                    report(rows)
                if not (unfinished or over):
                    time.sleep(cfg.watch.every)
        if done:
            stability.show(tables, cfg)
        if why:
            note(f"the budget is spent: {why}; the same command with a larger one continues")
