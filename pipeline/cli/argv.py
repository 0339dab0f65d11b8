"""From the words of a command line to a verb, its folders, Hydra's overrides and the flags."""

import argparse
import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, NamedTuple, NoReturn

from bayes_at_n.pipeline.base.console import clean
from bayes_at_n.pipeline.base.errors import UserError, did_you_mean
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.cli.verbs import RUN, VERBS, Verb

_HYDRA: dict[str, dict[str, Any]] = {
    "--cfg -c": {"choices": ["job", "all"], "help": "print the configuration and do nothing else"},
    "--info -i": {"choices": ["defaults", "searchpath"], "help": "print of what it is composed"},
    "--package -p": {"metavar": "KEY", "help": "of --cfg: this part alone"},
    "--resolve": {"action": "store_true", "help": "of --cfg: with interpolations put in"},
    "--config-dir -cd": {"metavar": "DIR", "help": "a folder of more group files"},
    "--multirun -m": {"action": "store_true", "help": "not needed: several values are many runs"},
}


@dataclass
class Everywhere:
    """Settings of every verb. Those that are true or false are flags, too."""

    quiet: bool = False  # only results, warnings and errors
    verbose: bool = False  # every table in full, and a note of every step
    json: bool = False  # results as JSON on standard output, all else on standard error
    runs: str = "runs"  # run folders are runs/DATASET/RUN


_SAID = {
    "-q --quiet": "only results, warnings and errors",
    "-v --verbose": "every table in full, and a note of every step",
    "--json": "results as JSON, an object a line on standard output; all else on standard error",
}


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
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=_takes(verb))
    for flag, what in verb.flags.items():
        if isinstance(what, str):
            parser.add_argument(flag, action="store_true", help=what)
        else:
            parser.add_argument(flag, metavar=what[0], help=what[1], type=what[2])
    for names, said in _SAID.items():
        parser.add_argument(*names.split(), action="store_true", help=said)
    of_hydra = parser.add_argument_group("of Hydra")
    for names, options in _HYDRA.items():
        of_hydra.add_argument(*names.split(), **options)


def _takes(verb: Verb) -> str:
    groups = "GROUP=CHOICE or " if verb.settings == RUN else ""
    words = "".join(f", or {word}" for word in verb.words)
    return f"{groups}KEY=VALUE" + ", or run folders" * verb.folders + words


def parse(arguments: Sequence[str]) -> Command:
    """Read a command line that begins with a verb.

    Raises UserError: no such verb, option, folder or key.

    >>> command = parse(["score", "runs/aime25/x", "--json", "trials=8", "metrics=avg,pass@8"])
    >>> command.verb, command.folders, command.said
    ('score', ['runs/aime25/x'], ['json'])
    >>> command.settings
    ['sampling.trials=8', 'scoring.metrics=[avg,pass@8]']
    """
    name, *rest = arguments
    if name not in VERBS:
        known = did_you_mean(name, VERBS)
        raise UserError(f"{name}: no such {'option' if name[:1] == '-' else 'verb'} ({known})")
    verb, parser = VERBS[name], Parser(f"{PROGRAM} {name}", allow_abbrev=False)
    fill(parser, verb)
    given = vars(parser.parse_intermixed_args(rest))
    words = given.pop("settings")
    said = [word for word in ("quiet", "verbose", "json") if given.pop(word)]
    del given["multirun"]
    place = given.pop("config_dir")
    hydra = {key: given.pop(key) for key in ("cfg", "info", "package", "resolve")}
    flags = given | {word: word in words for word in verb.words}
    folders, settings = _told_apart([word for word in words if word not in verb.words], verb)
    if place is not None:
        from bayes_at_n.pipeline.config.overrides import quoted

        settings.append(f"hydra.searchpath=[{quoted(f'file://{os.path.abspath(place)}')}]")
    if settings:  # Hydra is imported here
        found, settings, more = _spelt(verb, settings, bool(folders or given.get("file")))
        folders, said = [*folders, *found], [*said, *more]
    return Command(name, folders, settings, flags, {k: v for k, v in hydra.items() if v}, said)


def _told_apart(words: list[str], verb: Verb) -> tuple[list[str], list[str]]:
    """Folders, patterns of them taken apart, and settings."""
    from bayes_at_n.pipeline.config.overrides import is_folder

    folders: list[str] = []
    settings = [word for word in words if not is_folder(word)]
    for word in filter(is_folder, words):
        if not verb.folders:
            raise UserError(f"{word}: not a setting; write KEY=VALUE, as source=FOLDER")
        matches = [] if os.path.isdir(word) else sorted(glob.glob(f"{os.path.expanduser(word)}/"))
        folders += [match.rstrip("/") for match in matches] or [word]
    return folders, settings


def kinds_of(verb: Verb, settings: Sequence[str]) -> list[type[Any]]:
    """The dataclasses whose keys a verb takes: its own, and a run's."""
    from bayes_at_n.pipeline.config.settings import RunConfig
    from bayes_at_n.pipeline.config.settle import SettleConfig, is_until

    kinds = [verb.kind]
    if verb.kind is RunConfig and any(map(is_until, settings)):
        kinds = [SettleConfig, RunConfig]
    return [*kinds, RunConfig] if verb.runs_too and RunConfig not in kinds else kinds


def _spelt(verb: Verb, settings: list[str], chosen: bool) -> tuple[list[str], list[str], list[str]]:
    """Folders that settings name, the others with full keys, and how much is said.

    `chosen`: what the verb reads is named already.
    """
    from bayes_at_n.pipeline.config import compose, overrides
    from bayes_at_n.pipeline.config.settings import RunConfig

    own = [
        s for s in settings if s.partition("=")[0] in {field.name for field in fields(Everywhere)}
    ]
    kinds = kinds_of(verb, settings)
    if any("runs" in {field.name for field in fields(kind)} for kind in kinds):
        own = [setting for setting in own if not setting.startswith("runs=")]
    cfg = compose.load_as(Everywhere, own) if own else Everywhere()
    rest = [setting for setting in settings if setting not in own]
    folders: list[str] = []
    if verb.reads and not chosen:
        folders, rest = _of_datasets(verb, rest, cfg.runs)
    lists = compose.parted(rest, *kinds)
    if cfg.runs != "runs" and not folders and RunConfig in kinds:
        place = overrides.quoted(f"{cfg.runs}/'")[1:-3]  # in quotes, whatever it is
        name = "${dataset.name}/${model.name}${folder_tag:${tag}}"
        lists.append([f"run_dir='{place}{name}'"])
    said = [word for word in ("quiet", "verbose", "json") if getattr(cfg, word)]
    return folders, list(dict.fromkeys(chain(*lists))), said


def _of_datasets(verb: Verb, settings: list[str], runs: str) -> tuple[list[str], list[str]]:
    """The run folders of `dataset=NAME,...`, where nothing else says which run is meant.

    Of a verb whose settings have data sets those without a run are left to it.
    """
    from pathlib import Path

    from bayes_at_n.pipeline.config import compose, overrides
    from bayes_at_n.pipeline.store import find

    parsed = {setting: overrides.parse(setting) for setting in settings}
    keys = {override.key_or_group for override in parsed.values()}
    of_run = verb.settings == RUN
    other = of_run and keys & {*compose.groups(), "tag", "run_dir", "model.id"} - {"dataset"}
    if "dataset" not in keys or other:
        return [], settings
    [text] = [setting for setting, of in parsed.items() if of.key_or_group == "dataset"][-1:]
    override = parsed[text]
    value = (
        [*override.sweep_string_iterator()] if override.is_sweep_override() else override.value()
    )
    folders: list[str] = []
    for name in value if isinstance(value, list) else [value]:
        place = Path(runs).expanduser() / str(name)
        if of_run and not any(place.glob("*/config.yaml")):
            return [], settings
        folders += map(str, find.within(place))
    return folders, [setting for setting in settings if setting != text]
