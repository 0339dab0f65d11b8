"""From the words of a command line to a verb, its folders, Hydra's overrides and the flags."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from bayes_at_n.pipeline.base.console import clean
from bayes_at_n.pipeline.base.errors import UserError, did_you_mean
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.cli.verbs import RUN, VERBS, Verb

_EVERY: dict[str, str | dict[str, Any]] = {  # verb takes these; the last six are Hydra's
    "-q --quiet": "only results, warnings and errors",
    "-v --verbose": "every table in full, and a note of every step",
    "--json": "results as JSON, an object a line on standard output; all else on standard error",
    "--cfg -c": {"choices": ["job", "all"], "help": "print the configuration and do nothing else"},
    "--info -i": {"choices": ["defaults", "searchpath"], "help": "print of what it is composed"},
    "--package -p": {"metavar": "KEY", "help": "of --cfg: this part alone"},
    "--resolve": "of --cfg: with interpolations put in",
    "--config-dir -cd": {"metavar": "DIR", "help": "a folder of more group files"},
    "--multirun -m": "not needed: several values are many runs",
}


class Command(NamedTuple):
    """What a command line says."""

    verb: str
    folders: list[str]
    settings: list[str]
    flags: dict[str, Any]  # the keyword arguments of the verb's function
    hydra: dict[str, Any]  # of cfg, info, package, resolve those that are given
    said: list[str]  # how much is said: quiet, verbose, json


class Parser(argparse.ArgumentParser):
    """Whose errors are ours: one line."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError: an option that there is not."""
        raise UserError(f"{clean(message)}; see `{self.prog} --help`")


def fill(parser: argparse.ArgumentParser, verb: Verb) -> None:
    """Declare what a verb takes."""
    takes = ["KEY=VALUE", *["run folders"] * verb.folders, *verb.words]
    takes[:0] = ["GROUP=CHOICE"] * (verb.settings == RUN)
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=", or ".join(takes))
    for names, what in {**verb.flags, **_EVERY}.items():
        switch: dict[str, Any] = {"action": "store_true", "help": what}
        parser.add_argument(*names.split(), **switch if isinstance(what, str) else what)


def parse(arguments: Sequence[str]) -> Command:
    """Read a command line that begins with a verb.

    Raises UserError: no such verb, option or folder, or what is no setting.

    >>> parse(["score", "--json", "trials=8", "metrics=avg,pass@8"])[2:4]
    (['trials=8', 'metrics=avg,pass@8'], {'rubrics': False})
    """
    from bayes_at_n.pipeline.config import overrides  # pydantic, which `--help` does without

    name, *rest = arguments
    if name not in VERBS:
        kind = "option" if name[:1] == "-" else "verb"
        raise UserError(f"{name}: no such {kind} ({did_you_mean(name, VERBS)})")
    verb, parser = VERBS[name], Parser(f"{PROGRAM} {name}", allow_abbrev=False)
    fill(parser, verb)
    given = vars(parser.parse_intermixed_args(rest))
    words, place, _ = (given.pop(key) for key in ("settings", "config_dir", "multirun"))
    said = [word for word in ("quiet", "verbose", "json") if given.pop(word)]
    shown = {key: given.pop(key) for key in ("cfg", "info", "package", "resolve")}
    flags = given | {word: word in words for word in verb.words}
    folders, settings = overrides.folders_of([word for word in words if word not in verb.words])
    if place is not None:
        more = overrides.quoted(f"file://{os.path.abspath(place)}")
        settings.append(f"hydra.searchpath=[{more}]")
    if settings:  # Hydra is imported here
        found, settings = _of_runs(verb, settings, bool(folders or given.get("file")))
        folders += found
    hydra = {key: value for key, value in shown.items() if value}
    return Command(name, folders, settings, flags, hydra, said)


def kinds_of(verb: Verb, settings: Sequence[str]) -> list[type[Any]]:
    """Return the dataclasses whose keys a verb takes: its own, and a run's."""
    from bayes_at_n.pipeline.config.settings import RunConfig
    from bayes_at_n.pipeline.config.settle import SettleConfig, is_until

    if verb.kind is RunConfig and any(map(is_until, settings)):
        return [SettleConfig, RunConfig]
    return [*dict.fromkeys([verb.kind, *[RunConfig] * verb.runs_too])]


def _of_runs(verb: Verb, settings: list[str], named: bool) -> tuple[list[str], list[str]]:
    """Turn `runs=`, and `dataset=` of a verb that reads runs, into run folders or a `run_dir`.

    `named`: what the verb reads is named already. Returns folders and the other settings.
    """
    from bayes_at_n.pipeline.config import compose, overrides
    from bayes_at_n.pipeline.config.checks import keys
    from bayes_at_n.pipeline.config.settings import RunConfig
    from bayes_at_n.pipeline.store import find

    values, kinds = {}, kinds_of(verb, settings)
    for override in map(overrides.parse, settings):
        value = override.value()
        values[override.key_or_group] = getattr(value, "list", None) or value  # of a,b the list
    root, folders = str(values.get("runs", "runs")), []
    if verb.reads and not named:
        names = values.get("dataset", [])
        names = names if isinstance(names, list) else [names]
        places = [Path(root).expanduser() / str(name) for name in names]
        # Of a verb on one run: where nothing else says which run is meant, and the runs are there.
        others = {*values} & {*compose.groups(), "tag", "run_dir", "model.id"} - {"dataset"}
        there = all(any(place.glob("*/config.yaml")) for place in places)
        if verb.settings != RUN or (there and not others):
            folders = [str(folder) for place in places for folder in find.within(place)]
    taken = {"dataset"} if folders else set[str]()
    if not any("runs" in keys(kind) for kind in kinds):
        taken.add("runs")
    rest = [one for one in settings if overrides.parse(one).key_or_group not in taken]
    if "runs" in values and not folders and RunConfig in kinds:
        place = f"{root}/${{dataset.name}}/${{model.name}}${{folder_tag:${{tag}}}}"
        rest.append(f"run_dir={overrides.quoted(place, True)}")
    return folders, rest
