"""What the benchmarks share: arguments, one engine for all sides, alternating rounds, reports."""

import argparse
import contextlib
import gc
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base.errors import Interrupted, UserError
from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.generate.stage import generate
from bayes_at_n.pipeline.prepare import sizing
from bayes_at_n.pipeline.prepare.stage import prepare
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run

out = Console(highlight=False, soft_wrap=True)


def parser(doc: str | None, **numbers: float) -> argparse.ArgumentParser:
    """A parser with the arguments of every benchmark, and numbers with these defaults.

    The module's docstring is the help.
    """
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, number in numbers.items():
        option, text = f"--{name.replace('_', '-')}", "default %(default)s"
        made.add_argument(option, type=type(number), default=number, metavar="N", help=text)
    made.add_argument("--json", type=Path, metavar="FILE", help="write every figure there, too")
    made.add_argument(
        "--workdir",
        type=Path,
        metavar="DIR",
        help="where temporary run folders go: put it on the disk you want to measure"
        " (default: runs/ of the project)",
    )
    return made


def add_rounds(made: argparse.ArgumentParser, default: int = 5) -> None:
    """Add --rounds."""
    made.add_argument(
        "--rounds", type=int, default=default, metavar="N", help="default %(default)s"
    )


def add_work(made: argparse.ArgumentParser) -> None:
    """Add what says which attempts to make: model, questions, trials, length, other settings."""
    made.add_argument(
        "--model",
        default="demo",
        metavar="NAME|FOLDER|ID",
        help="a name in configs/model, a folder, or a hub id that is already downloaded",
    )
    made.add_argument("--questions", type=Path, metavar="FILE", help=".jsonl (default: the demo's)")
    made.add_argument("--limit", type=int, metavar="M", help="only the first M questions")
    made.add_argument("--trials", type=int, default=80, metavar="N", help="default %(default)s")
    made.add_argument("--max-tokens", type=int, default=96, metavar="T", help="default %(default)s")
    made.add_argument(
        "settings",
        nargs="*",
        metavar="KEY=VALUE",
        help="any other setting of the pipeline, such as engine.batch_size=512",
    )


def settings(args: argparse.Namespace) -> list[str]:
    """The pipeline settings that the arguments of `add_work` stand for."""
    found = ["sampling=demo", f"sampling.max_tokens={args.max_tokens}"]
    found += [f"sampling.trials={args.trials}"]
    if args.model in compose.files("model"):
        found += [f"model={args.model}"]
    else:
        found += ["model=custom", f"model.id={_absolute(args.model)}"]
    if args.questions:
        found += ["dataset=jsonl", f"dataset.path={args.questions.resolve()}"]
    if args.limit:
        found += [f"dataset.limit={args.limit}"]
    return found + args.settings


def _absolute(name: str) -> str:
    return str(Path(name).resolve()) if Path(name).is_dir() else name


def run_config(args: argparse.Namespace, folder: Path, *more: str) -> RunConfig:
    """The checked configuration of a run in `folder`."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    return compose.load([*settings(args), *more, f"run_dir={folder}"])


@contextlib.contextmanager
def workdir(args: argparse.Namespace) -> Iterator[Path]:
    """A temporary folder on the disk that is to be measured."""
    parent = args.workdir or ROOT / "runs"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=parent) as made:
        yield Path(made)


class Handed:
    """An engine that is already loaded, in the place of the one that the stage would load.

    The stage's own closing of it only marks the end; `started` to `ended` is all that the stage
    does with an engine that is ready, `prompt_s` the part of it for prompt log-probs.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.started = self.ended = self.prompt_s = self.cpu_s = 0.0
        self.prompts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def prompt_logprobs(self, prompts: list[list[int]]) -> Any:
        began = time.perf_counter()
        found = self._engine.prompt_logprobs(prompts)
        self.prompt_s += time.perf_counter() - began
        self.prompts += len(prompts)
        return found

    def close(self) -> None:
        self.ended = time.perf_counter()
        self.cpu_s += time.process_time()


@contextlib.contextmanager
def handed(engine: Any) -> Iterator[Handed]:
    """Inside, the generate stage gets `engine` instead of loading one of its own."""
    wrapped, before = Handed(engine), engines.load

    def load(cfg: RunConfig, longest: int, rows: Any = ()) -> Any:
        engine.cfg = cfg  # sampling switches are read for every request
        wrapped.cpu_s -= time.process_time()
        wrapped.started = time.perf_counter()
        return wrapped

    engines.load = load
    try:
        yield wrapped
    finally:
        engines.load = before


class Stage:
    """The generate stage in fresh run folders of the same questions, with one loaded engine."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args, self.folder = _frozen(args, folder), folder
        self.numbers = itertools.count()
        self.base = Run(run_config(self.args, folder / "prepared"))
        prepare(self.base)
        self.questions = self.base.questions
        self.base = Run(sizing.resolved_alone(self.base.cfg, self.questions))
        longest = max(len(q["prompt_token_ids"]) + q["max_tokens"] for q in self.questions)
        out.print(f"loading {self.base.cfg.model.name} ...")
        began = time.perf_counter()
        self.engine: Any = engines.load(self.base.cfg, longest, self.questions)
        self.load_s = time.perf_counter() - began

    @property
    def trials(self) -> int:
        """Trials of every question; lower while warming up."""
        return self.base.cfg.sampling.trials

    def measure(self, *more: str) -> dict[str, float]:
        """Run the stage once in a fresh run folder with additional settings; times in seconds.

        "seconds" is the stage with an engine that is ready, by this script's clock; "wall_s" the
        same by the stage's own record; "sampling_s" without the prompt log-probs; "call_s" the
        whole call, with reading the folder, the lease and the description of the machine; "cpu_s"
        the processor time of this process in "seconds", all threads.
        """
        folder = self.folder / f"run-{next(self.numbers)}"
        run = Run(run_config(self.args, folder, f"sampling.trials={self.trials}", *more))
        prepare(run)
        if _prompts(run) != _prompts(self.base):
            raise UserError(f"{folder}: other prompts than at the start; nothing can be compared")
        with handed(self.engine) as engine:
            began = time.perf_counter()
            generate(run)
            call = time.perf_counter() - began
        [session] = [json.loads(p.read_text()) for p in (folder / "sessions").glob("*.json")]
        if session["attempts"] != len(run.keys):
            raise UserError(f"{folder}: only {session['attempts']} of {len(run.keys)} attempts")
        shutil.rmtree(folder)
        seconds = engine.ended - engine.started
        return {
            "seconds": seconds,
            "wall_s": session["wall_s"],
            "sampling_s": seconds - engine.prompt_s,
            "call_s": call,
            "cpu_s": engine.cpu_s,
            "attempts": session["attempts"],
            "tokens": session["completion_tokens"],
        }


def _frozen(args: argparse.Namespace, folder: Path) -> argparse.Namespace:
    """The same arguments with a copy of the questions that nobody can change meanwhile."""
    if not args.questions:
        return args
    copy = folder / args.questions.name
    try:
        shutil.copyfile(args.questions, copy)
    except OSError as error:
        raise UserError(f"--questions {args.questions}: {error.strerror}") from error
    return argparse.Namespace(**vars(args) | {"questions": copy})


def _prompts(run: Run) -> list[list[int]]:
    return [question["prompt_token_ids"] for question in run.questions]


def alternate(
    rounds: int, variants: dict[str, Callable[[], dict[str, float]]]
) -> dict[str, list[dict[str, float]]]:
    """Run all variants once a round, every other round in the opposite order."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
    for i in range(rounds):
        order = list(variants) if i % 2 == 0 else list(variants)[::-1]
        for name in order:
            gc.collect()
            measured = variants[name]()
            found[name].append(measured)
            _same_work(found)
            out.print(f"round {i + 1}/{rounds}  {name:<36} {measured['seconds']:9.3f} s")
    return found


def _same_work(found: dict[str, list[dict[str, float]]]) -> None:
    """Times of unequal work compare nothing.

    Raises:
        UserError: when two measurements have not made the same number of attempts.
    """
    made = {name: m["attempts"] for name, ms in found.items() for m in ms if "attempts" in m}
    if len(set(made.values())) > 1:
        raise UserError(f"unequal work, no comparison: attempts made are {made}")


def ratio(above: list[float], below: list[float]) -> dict[str, Any]:
    """How two sides compare: the median over rounds of their ratio, and the ratio of minima."""
    rounds = [a / b for a, b in zip(above, below, strict=True)]
    return {
        "median": statistics.median(rounds),
        "of_minima": min(above) / min(below),
        "rounds": rounds,
    }


def against_target(text: str, found: dict[str, Any], most: float = 0.0, least: float = 0.0) -> str:
    """One line: a ratio, its spread, and whether the target is met by the median."""
    line = (
        f"{text}: {found['median']:.3f} (median of {len(found['rounds'])} rounds,"
        f" {min(found['rounds']):.3f} to {max(found['rounds']):.3f}; of minima"
        f" {found['of_minima']:.3f})"
    )
    if most:
        return line + f"; target at most {most:g}: {_met(found['median'] <= most)}"
    if least:
        return line + f"; target at least {least:g}: {_met(found['median'] >= least)}"
    return line


def _met(yes: bool) -> str:
    return "met" if yes else "NOT met"


def table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """Print a table: the first column is text, the others are numbers."""
    made = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        made.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        made.add_row(*(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row))
    out.print(made)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    """One JSON object a line."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def finish(args: argparse.Namespace, record: dict[str, Any]) -> None:
    """Write --json FILE: the figures, the command and what they were measured on."""
    from bayes_at_n.pipeline.base.program import describe

    if args.json:
        record = {"command": sys.argv, **describe(), **record}
        args.json.parent.mkdir(parents=True, exist_ok=True)
        runfolder.write_json(args.json, record)
        out.print(f"saved {args.json}")


def main(function: Callable[[], None]) -> None:
    """Run a benchmark; a mistake of the user's is one line."""
    try:
        function()
    except (UserError, Interrupted) as error:
        out.print(f"error: {error}", style="bold red", markup=False)
        raise SystemExit(error.exit_code) from None
