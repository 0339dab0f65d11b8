"""What a shell offers after TAB: verbs, flags, groups, their choices, keys, and run folders.

argcomplete runs the program itself at every TAB, so what is offered is what is there now: a user's
own files in `configs/`, the runs made since.
"""

import argparse
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import argcomplete
from argcomplete.completers import FilesCompleter

from pipeline.cli.arguments import keys
from pipeline.cli.verbs import RUN, VERBS


def answer(parser: argparse.ArgumentParser) -> None:
    """Answer the shell, and end the process."""
    argcomplete.autocomplete(
        parser,
        always_complete_options=False,
        default_completer=_value,  # type: ignore[arg-type]
    )


def _value(prefix: str, action: Any, parsed_args: Any, **_: Any) -> Iterable[str]:
    if action.option_strings:
        return FilesCompleter()(prefix)
    return offered(parsed_args.verb, prefix)


def offered(name: str, prefix: str) -> Iterator[str]:
    """The settings and run folders that may stand behind a verb and begin so.

    >>> [*offered("run", "sampling=p"), *offered("run", "model=limo-v2,qwen3-3")]
    ['sampling=paper', 'model=limo-v2,qwen3-30b']
    >>> [*offered("score", "scoring.pl"), *offered("score", "engine")]
    ['scoring.plots=']
    """
    from pipeline.config import compose

    verb = VERBS[name]
    key, given, text = prefix.partition("=")
    groups = compose.groups() if verb.settings == RUN or verb.runs_too else ["rubric"]
    if given:
        before, comma, _ = text.rpartition(",")
        names = compose.choices(key) if key in groups else _of_runs(key)
        every: Iterator[str] = (f"{key}={before}{comma}{name}" for name in names)
    else:
        every = (f"{group}=" for group in groups if _concerns(name, group))
        if prefix or verb.settings != RUN:  # of `run` there are 150
            every = chain(every, (f"{key}=" for key in keys(verb)))
        every = chain(every, _folders(prefix) if verb.folders else ())
    return (found for found in every if found.startswith(prefix))


def _concerns(name: str, group: str) -> bool:
    verb = VERBS[name]
    which_run = verb.keys is not None and group in ("model", "dataset")
    return verb.runs_too or which_run or any(key.startswith(f"{group}.") for key in keys(verb))


def _of_runs(key: str) -> Iterator[str]:
    """The data sets or models of the runs here, for verbs that look at many."""
    levels = {"dataset": "*", "model": "*/*"}
    found = Path("runs").glob(levels[key]) if key in levels else iter(())
    return iter(sorted({path.name for path in found if path.is_dir() and path.name[0] not in "._"}))


def _folders(prefix: str) -> Iterator[str]:
    """Run folders, and folders with runs at most two levels below."""
    place, slash, _ = prefix.rpartition("/")
    for path in sorted(Path(f"{place}{slash}" or ".").expanduser().glob("[!.]*/")):
        shown = f"{place}{slash}{path.name}"
        if (path / "questions.parquet").is_file():
            yield shown
        elif any(True for depth in ("*", "*/*") for _ in path.glob(f"{depth}/questions.parquet")):
            yield f"{shown}/"
