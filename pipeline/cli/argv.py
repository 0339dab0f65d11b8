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

# Of every verb: how much is said, also as settings (quiet=true); and Hydra's flags.
_SAID = {
    "-q --quiet": "only results, warnings and errors",
    "-v --verbose": "every table in full, and a note of every step",
    "--json": "results as JSON, an object a line on standard output; all else on standard error",
}
_WORDS = ("quiet", "verbose", "json")
_HYDRA: dict[str, dict[str, Any]] = {
    "--cfg -c": {"choices": ["job", "all"], "help": "print the configuration and do nothing else"},
    "--info -i": {"choices": ["defaults", "searchpath"], "help": "print of what it is composed"},
    "--package -p": {"metavar": "KEY", "help": "of --cfg: this part alone"},
    "--resolve": {"action": "store_true", "help": "of --cfg: with interpolations put in"},
    "--config-dir -cd": {"metavar": "DIR", "help": "a folder of more group files"},
    "--multirun -m": {"action": "store_true", "help": "not needed: several values are many runs"},
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
    switches: dict[str, Any] = {**verb.flags, **_SAID}
    for names, what in switches.items():
        valued = {"metavar": what[0], "help": what[1], "type": what[2]}
        switch = {"action": "store_true", "help": what}
        parser.add_argument(*names.split(), **switch if isinstance(what, str) else valued)
    of_hydra = parser.add_argument_group("of Hydra")
    for names, options in _HYDRA.items():
        of_hydra.add_argument(*names.split(), **options)


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
    said = [word for word in _WORDS if given.pop(word)]
    shown = {key: given.pop(key) for key in ("cfg", "info", "package", "resolve")}
    hydra = {key: value for key, value in shown.items() if value}
    flags = given | {word: word in words for word in verb.words}
    folders, settings = overrides.folders_of([word for word in words if word not in verb.words])
    if place is not None:
        more = overrides.quoted(f"file://{os.path.abspath(place)}")
        settings.append(f"hydra.searchpath=[{more}]")
    if settings:  # Hydra is imported here
        found, settings, loud = _common(verb, settings, bool(folders or given.get("file")))
        folders, said = [*folders, *found], [*said, *loud]
    return Command(name, folders, settings, flags, hydra, said)


def kinds_of(verb: Verb, settings: Sequence[str]) -> list[type[Any]]:
    """The dataclasses whose keys a verb takes: its own, and a run's."""
    from bayes_at_n.pipeline.config.settings import RunConfig
    from bayes_at_n.pipeline.config.settle import SettleConfig, is_until

    if verb.kind is RunConfig and any(map(is_until, settings)):
        return [SettleConfig, RunConfig]
    return [*dict.fromkeys([verb.kind, *[RunConfig] * verb.runs_too])]


def _common(verb: Verb, settings: list[str], named: bool) -> tuple[list[str], list[str], list[str]]:
    """Take out settings of every verb: folders of `dataset=` and `runs=`, and how much is said.

    `named`: what the verb reads is named already. Returns folders, the other settings, and words.
    """
    from bayes_at_n.pipeline.config.checks import keys
    from bayes_at_n.pipeline.config.overrides import quoted
    from bayes_at_n.pipeline.config.settings import RunConfig

    kinds = kinds_of(verb, settings)
    own = {*_WORDS, "runs"} - {key for kind in kinds for key in keys(kind)}
    taken = {key: value for key, value in map(_value, settings) if key in own}
    rest = [setting for setting in settings if _value(setting)[0] not in own]
    for word in _WORDS:
        if taken.get(word, True) not in (True, False):
            raise UserError(f"{word}={taken[word]}: must be true or false")
    runs, folders = str(taken.get("runs", "runs")), []
    if verb.reads and not named:
        folders = _of_datasets(verb, dict(map(_value, rest)), runs)
        rest = [one for one in rest if not folders or _value(one)[0] != "dataset"]
    if "runs" in taken and not folders and RunConfig in kinds:
        place = quoted(f"{runs}/${{dataset.name}}/${{model.name}}${{folder_tag:${{tag}}}}", True)
        rest.append(f"run_dir={place}")
    return folders, rest, [word for word in _WORDS if taken.get(word)]


def _value(setting: str) -> tuple[str, Any]:
    """The key of a setting, and its value; of several values the list."""
    from bayes_at_n.pipeline.config.overrides import parse

    override = parse(setting)
    return override.key_or_group, getattr(override.value(), "list", None) or override.value()


def _of_datasets(verb: Verb, values: dict[str, Any], runs: str) -> list[str]:
    """The run folders of `dataset=NAME,...`, where nothing else says which run is meant.

    None of a verb on one run where data sets have no runs: those it names itself.
    """
    from bayes_at_n.pipeline.config import compose
    from bayes_at_n.pipeline.store import find

    names = values.get("dataset", [])
    places = [Path(runs).expanduser() / f"{n}" for n in (names if type(names) is list else [names])]
    if verb.settings == RUN:
        more = {*values} & {*compose.groups(), "tag", "run_dir", "model.id"} - {"dataset"}
        if more or not all(any(place.glob("*/config.yaml")) for place in places):
            return []
    return [str(folder) for place in places for folder in find.within(place)]
