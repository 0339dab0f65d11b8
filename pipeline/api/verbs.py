"""`evaluate`, `load_run` and `compare`: the verbs of the command line as functions.

A verb's result is returned instead of printed; notes, warnings and progress go to standard error.
Errors, which the command line prints in one line, are exceptions: `UserError` and the others of
`pipeline.base.errors`.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.adaptive.verb import run_until
from bayes_at_n.pipeline.api.overrides import of_run, overrides
from bayes_at_n.pipeline.api.results import Comparison, Evaluation
from bayes_at_n.pipeline.base.console import substep
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import set_environment
from bayes_at_n.pipeline.cli.runs import run_stages
from bayes_at_n.pipeline.compare import cohort as cohorts_of
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.config.folder import configured
from bayes_at_n.pipeline.engines import callable as functions
from bayes_at_n.pipeline.records.trackers import tracked
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run

Group = str | Mapping[str, Any] | None  # a choice of a group of settings, or keys of it


def evaluate(
    model: Group | functions.Function = None,
    dataset: Group | Sequence[Mapping[str, Any]] = None,
    name: str | None = None,
    *,
    trials: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    max_tokens: int | None = None,
    sampling: Group = None,
    prompt: Group = None,
    engine: Group = None,
    verifier: Group = None,
    rubric: str | Sequence[str] | None = None,
    tag: str | None = None,
    run_dir: str | Path | None = None,
    until: str | None = None,
    **settings: Any,
) -> Evaluation:
    """Complete a run, as the verb `run` does, and return it.

    Args:
        model: a name of `configs/model/`; keys of its settings (``{"id": FOLDER_OR_HUB_ID}``); or a
            function that takes a list of prompts and returns a list of as many texts.
        dataset: a name of `configs/dataset/`; keys of its settings (``{"path": FILE}``); or a list
            of questions, each a dict with `problem`, `answer` and perhaps `id`. With settings of
            their own: ``{"name": "sums", "rows": QUESTIONS, "answer": "exact"}``.
        name: the model's name in tables and of its folder. A function needs one. As its code is
            not compared, each function should have its own name.
        trials, temperature, top_p, max_tokens: of the sampling protocol.
        sampling, prompt, engine, verifier: a name of that folder of `configs/`, or keys of its
            settings (``sampling={"seed": 7}``, ``verifier="none"``).
        rubric: names of `configs/rubric/`, or files.
        tag, run_dir: the run's folder.
        until: sample until this is decided, such as "width:0.02".
        settings: any other setting of the command line, by its full or short name.

        None: the setting's default.

    Raises UserError, Interrupted, DamagedData: as the command line; an exception of a function is
    the cause of the one raised.
    """
    named = {
        **{"sampling": sampling, "prompt": prompt, "engine": engine, "verifier": verifier},
        **{"sampling.trials": trials, "sampling.temperature": temperature},
        **{"sampling.top_p": top_p, "sampling.max_tokens": max_tokens},
        **{"rubric": rubric, "tag": tag, "run_dir": run_dir},
    }
    settings |= {key: value for key, value in named.items() if value is not None}
    set_environment()
    function = model if callable(model) else None
    if until is not None and function is not None:
        raise UserError(f"until={until}: samples in other processes, which lack the function")
    with functions.registered(function), substep(), _no_event_loop():
        chosen = of_run(model, dataset, name, settings)
        cfg = configured(chosen)
        if until is None:
            with tracked(Run(cfg)):
                run_stages(Run(cfg))
        elif status := run_until([*chosen, f"until={until}"]):
            raise UserError(f"{cfg.run_dir}: exit status {status}; see the messages above")
    return Evaluation(Run(cfg)) if until is None else load_run(cfg.run_dir)


def load_run(folder: str | Path) -> Evaluation:
    """Open the run in a folder with its last settings.

    Raises UserError: a file, no run, or a damaged one.

    >>> load_run("no/folder")
    Traceback (most recent call last):
    bayes_at_n.pipeline.base.errors.UserError: no/folder is not a run folder: it has no config.yaml
    """
    path = Path(folder).expanduser()
    if path.is_file():
        what = "is a file; load_run takes the folder of a run, as in runs/DATASET/MODEL"
        raise UserError(f"{folder} {what}; `import` makes one of records")
    return Evaluation(runfolder.open_run(path))


def compare(runs: Sequence[Evaluation | str | Path], **settings: Any) -> Comparison:
    """Compare runs on the same questions, as the verb `compare` does, without writing files.

    Runs on several datasets are compared on all their questions together. `settings`: as on the
    command line, such as ``metrics=["pass@8"]``. Raises UserError: nothing that can be compared.
    """
    if isinstance(runs, str | Path | Evaluation):
        raise UserError(f"compare: {runs} is not a list; pass a list of runs or their folders")
    cfg = analysis.load(overrides(settings))
    cfg.folders = [str(run.path if isinstance(run, Evaluation) else run) for run in runs]
    if not cfg.folders:
        raise UserError("compare: no runs; pass a list of runs or their folders")
    cohorts = cohorts_of.load(cfg)
    return Comparison(cfg, cohorts[0] if len(cohorts) == 1 else cohorts_of.pooled(cohorts))


@contextlib.contextmanager
def _no_event_loop() -> Iterator[None]:
    """Allow event loops although one is running in this thread, as in notebooks."""
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)
