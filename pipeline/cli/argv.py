"""From the words of a command line to a verb, its folders, Hydra's overrides and the flags."""

import argparse
import glob
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from bayes_at_n.pipeline.base.console import clean
from bayes_at_n.pipeline.base.errors import UserError, did_you_mean
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.cli.verbs import GONE, RUN, VERBS, Verb

# Of every verb: how much is said, also as settings (quiet=true); and Hydra's flags.
_SAID = {
    "-q --quiet": "only results, warnings and errors",
    "-v --verbose": "every table in full, and a note of every step",
    "--json": "results as JSON, an object a line on standard output; all else on standard error",
}
_HYDRA: dict[str, dict[str, Any]] = {
    "--cfg -c": {"choices": ["job", "all"], "help": "print the configuration and do nothing else"},
    "--info -i": {"choices": ["defaults", "searchpath"], "help": "print of what it is composed"},
    "--package -p": {"metavar": "KEY", "help": "of --cfg: this part alone"},
    "--resolve": {"action": "store_true", "help": "of --cfg: with interpolations put in"},
    "--config-dir -cd": {"metavar": "DIR", "help": "a folder of more group files"},
    "--multirun -m": {"action": "store_true", "help": "not needed: several values are many runs"},
}
_WORDS = ("quiet", "verbose", "json")


class Command(NamedTuple):
    """What a command line says."""

    verb: str
    folders: list[str]
    settings: list[str]  # Hydra's overrides, with full keys
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
    groups, folders = "GROUP=CHOICE or " * (verb.settings == RUN), ", or run folders" * verb.folders
    takes = f"{groups}KEY=VALUE{folders}{''.join(f', or {word}' for word in verb.words)}"
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=takes)
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

    Raises UserError: no such verb, option, folder or key.

    >>> parse(["score", "runs/aime25/x", "--json", "trials=8", "metrics=avg,pass@8"])[:3]
    ('score', ['runs/aime25/x'], ['sampling.trials=8', 'scoring.metrics=[avg,pass@8]'])
    """
    from bayes_at_n.pipeline.config import overrides  # pydantic, which `--help` does without

    name, *rest = arguments
    if name not in VERBS:
        kind = "option" if name[:1] == "-" else "verb"
        raise UserError(f"{name}: no such {kind} ({did_you_mean(GONE.get(name, name), VERBS)})")
    verb, parser = VERBS[name], Parser(f"{PROGRAM} {name}", allow_abbrev=False)
    fill(parser, verb)
    given = vars(parser.parse_intermixed_args(rest))
    words = given.pop("settings")
    said = [word for word in _WORDS if given.pop(word)]
    place = given.pop("config_dir")
    hydra = {key: given.pop(key) for key in ("cfg", "info", "package", "resolve", "multirun")}
    flags = given | {word: word in words for word in verb.words}
    words = [word for word in words if word not in verb.words]
    folders = _matched([word for word in words if overrides.is_folder(word)], verb)
    settings = [word for word in words if not overrides.is_folder(word)]
    if place is not None:
        more = overrides.quoted(f"file://{os.path.abspath(place)}")
        settings.append(f"hydra.searchpath=[{more}]")
    if settings:  # Hydra is imported here
        named = bool(folders or given.get("file"))
        found, settings, loud = _spelt(verb, settings, named)
        folders, said = [*folders, *found], [*said, *loud]
    del hydra["multirun"]
    return Command(name, folders, settings, flags, {k: v for k, v in hydra.items() if v}, said)


def _matched(words: list[str], verb: Verb) -> list[str]:
    """The folders that words name, some of them by patterns."""
    if words and not verb.folders:
        raise UserError(f"{words[0]}: not a setting; write KEY=VALUE, as source=FOLDER")
    folders: list[str] = []
    for word in words:
        matches = [] if os.path.isdir(word) else sorted(glob.glob(f"{os.path.expanduser(word)}/"))
        folders += [match.rstrip("/") for match in matches] or [word]
    return folders


def kinds_of(verb: Verb, settings: Sequence[str]) -> list[type[Any]]:
    """The dataclasses whose keys a verb takes: its own, and a run's."""
    from bayes_at_n.pipeline.config.settings import RunConfig
    from bayes_at_n.pipeline.config.settle import SettleConfig, is_until

    until = verb.kind is RunConfig and any(map(is_until, settings))
    kinds = [SettleConfig if until else verb.kind]
    return [*kinds, RunConfig] if until or (verb.runs_too and RunConfig not in kinds) else kinds


def _spelt(verb: Verb, settings: list[str], named: bool) -> tuple[list[str], list[str], list[str]]:
    """Folders that settings name, the others with full keys, and how much is said.

    `named`: what the verb reads is named already.
    """
    from bayes_at_n.pipeline.config import compose, overrides
    from bayes_at_n.pipeline.config.settings import RunConfig

    kinds = kinds_of(verb, settings)
    folders: list[str] = []
    known = {key for kind in kinds for key in overrides.keys(kind)}
    ours = {*_WORDS, "runs"} - known
    own = {key: of for key, of in map(_value, settings) if key in ours}
    rest = [setting for setting in settings if _value(setting)[0] not in ours]
    if wrong := next((word for word in _WORDS if own.get(word, True) not in (True, False)), None):
        raise UserError(f"{wrong}={own[wrong]}: must be true or false")
    runs = str(own.get("runs", "runs"))
    if verb.reads and not named:
        folders, rest = _of_datasets(verb, rest, runs)
    lists = compose.parted(rest, *kinds)
    if runs != "runs" and not folders and RunConfig in kinds:
        place = overrides.quoted(f"{runs}/'")[1:-3]  # in quotes, whatever it is
        lists.append(
            [f"run_dir='{place}${{dataset.name}}/${{model.name}}${{folder_tag:${{tag}}}}'"]
        )
    loud = [word for word in _WORDS if own.get(word)]
    return folders, list(dict.fromkeys(chain(*lists))), loud


def _value(setting: str) -> tuple[str, Any]:
    """The key of a setting, and its value; of several values the list."""
    from bayes_at_n.pipeline.config.overrides import parse

    override = parse(setting)
    several = override.is_sweep_override() and override.is_choice_sweep()
    return override.key_or_group, getattr(override.value(), "list", None) if several else (
        override.value()
    )


def _of_datasets(verb: Verb, settings: list[str], runs: str) -> tuple[list[str], list[str]]:
    """The run folders of `dataset=NAME,...`, where nothing else says which run is meant.

    Of a verb whose settings have data sets those without a run are left to it.
    """
    from bayes_at_n.pipeline.config import compose
    from bayes_at_n.pipeline.store import find

    values = dict(map(_value, settings))
    of_run = verb.settings == RUN
    more = of_run and {*values} & {*compose.groups(), "tag", "run_dir", "model.id"} - {"dataset"}
    names = values.get("dataset")
    if names is None or more:
        return [], settings
    places = [
        Path(runs).expanduser() / f"{of}" for of in (names if isinstance(names, list) else [names])
    ]
    if of_run and not all(any(place.glob("*/config.yaml")) for place in places):
        return [], settings
    folders = [str(folder) for place in places for folder in find.within(place)]
    return folders, [setting for setting in settings if _value(setting)[0] != "dataset"]
