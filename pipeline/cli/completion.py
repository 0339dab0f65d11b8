"""What a shell offers after TAB, from what is there now: argcomplete runs the program itself."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import argcomplete
from argcomplete.completers import FilesCompleter

from bayes_at_n.pipeline.cli import argv
from bayes_at_n.pipeline.cli.help import keys
from bayes_at_n.pipeline.cli.verbs import RUN, VERBS

_LEVELS = {"dataset": "*/", "model": "*/*/"}


def answer() -> None:
    """Answer the shell, and end the process."""
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb")
    for name, verb in VERBS.items():
        argv.fill(verbs.add_parser(name), verb)
    argcomplete.autocomplete(parser, False, default_completer=_value)  # type: ignore[arg-type]


def _value(prefix: str, action: Any, parsed_args: Any, **_: Any) -> Iterable[str]:
    files: Iterable[str] = FilesCompleter()(prefix)
    return files if action.option_strings else offered(parsed_args.verb, prefix)


def offered(name: str, prefix: str) -> Iterator[str]:
    """The settings and run folders that may stand behind a verb and begin so.

    >>> [*offered("run", "sampling=p"), *offered("run", "model=limo-v2,qwen3-3")]
    ['sampling=paper', 'model=limo-v2,qwen3-30b']
    >>> [*offered("score", "scoring.pl"), *offered("score", "engine")]
    ['scoring.plots=']
    """
    from bayes_at_n.pipeline.config import compose

    verb, (key, given, text) = VERBS[name], prefix.partition("=")
    of_run = verb.settings == RUN or verb.runs_too
    groups = [*compose.groups(), "rubric"] if of_run else ["rubric"]
    if given:
        before, comma, _ = text.rpartition(",")
        names = compose.choices(key) if key in groups else []
        if key in _LEVELS and not of_run:  # of the runs there are
            names = sorted(
                {p.name for p in Path("runs").glob(_LEVELS[key]) if p.name[0] not in "._"}
            )
        every = [f"{key}={before}{comma}{name}" for name in names]
    else:
        known = keys(verb)
        concern = {one.partition(".")[0] for one in known if "." in one}
        concern |= {*groups} if verb.runs_too else {"model", "dataset"} if of_run else set()
        every = [f"{group}=" for group in groups if group in concern]
        every += [f"{one}=" for one in known if prefix or not of_run]  # of `run` there are 150
        every += _folders(prefix) if verb.folders else []
    return (found for found in every if found.startswith(prefix))


def _folders(prefix: str) -> Iterator[str]:
    """Run folders, and folders with runs at most two levels below."""
    place, slash, _ = prefix.rpartition("/")
    for path in sorted(Path(f"{place}{slash}" or ".").expanduser().glob("[!.]*/")):
        shown = f"{place}{slash}{path.name}"
        if (path / "questions.parquet").is_file():
            yield shown
        elif any(True for depth in ("*", "*/*") for _ in path.glob(f"{depth}/questions.parquet")):
            yield f"{shown}/"
