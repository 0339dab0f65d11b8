"""A command: its verb, run folders, settings and flags, and what is done with them."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base.errors import UserError, did_you_mean
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.cli.verbs import RUN, VERBS, Parser, Verb, declare
from bayes_at_n.pipeline.config import compose, folder
from bayes_at_n.pipeline.config.checks import keys
from bayes_at_n.pipeline.config.folder import configured
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.config.settle import SettleConfig, of_key
from bayes_at_n.pipeline.store import find, parquet
from bayes_at_n.pipeline.store.runfolder import Run


class Command(NamedTuple):
    """What a command line says."""

    verb: str
    folders: list[str]
    settings: list[str]
    flags: dict[str, Any]  # the keyword arguments of the verb's function
    hydra: dict[str, Any]  # of cfg, info, package, resolve those that are given
    said: list[str]  # how much is said: quiet, verbose, json


def parse(arguments: Sequence[str]) -> Command:
    """Read a command line that begins with a verb.

    Raises UserError: no such verb, option or folder, or what is no setting.
    """
    name, *rest = arguments
    if name not in VERBS:
        kind = "option" if name[:1] == "-" else "verb"
        raise UserError(f"{name}: no such {kind} ({did_you_mean(name, VERBS)})")
    verb, parser = VERBS[name], Parser(f"{PROGRAM} {name}", allow_abbrev=False)
    declare(parser, verb)
    given = vars(parser.parse_intermixed_args(rest))
    words, place, _ = (given.pop(key) for key in ("settings", "config_dir", "multirun"))
    said = [word for word in ("quiet", "verbose", "json") if given.pop(word)]
    shown = {key: given.pop(key) for key in ("cfg", "info", "package", "resolve")}
    flags = given | {word: word in words for word in verb.words}
    folders, settings = compose.folders_of([word for word in words if word not in verb.words])
    if place is not None:
        more = compose.quoted(f"file://{os.path.abspath(place)}")
        settings.append(f"hydra.searchpath=[{more}]")
    if settings:  # Hydra is imported here
        found, settings = _of_runs(verb, settings, bool(folders or given.get("file")))
        folders += found
    return Command(name, folders, settings, flags, {k: v for k, v in shown.items() if v}, said)


def _is_race(command: Command) -> bool:
    """Return whether runs are sampled until something is decided, as by `settle`."""
    return command.verb in ("run", "submit") and bool(of_key("until", command.settings))


def _of_runs(verb: Verb, settings: list[str], named: bool) -> tuple[list[str], list[str]]:
    """Turn `runs=`, and `dataset=` of a verb that reads runs, into run folders or a `run_dir`.

    `named`: what the verb reads is named already. Returns folders and the other settings.
    """
    overrides = [compose.parse(setting) for setting in settings]
    values, folders, taken = {of.key_or_group: of.value() for of in overrides}, [], set[str]()
    root, names = str(values.get("runs", "runs")), values.get("dataset", [])
    names = getattr(names, "list", names)  # of a,b the list
    if verb.reads and not named:
        names = names if isinstance(names, list) else [names]
        places = [Path(root).expanduser() / str(name) for name in names]
        # Of a verb on one run: where nothing else says which run is meant, and the runs are there.
        others = {*values} & {*compose.GROUPS, "tag", "run_dir", "model.id"} - {"dataset"}
        there = all(any(place.glob("*/config.yaml")) for place in places)
        if verb.settings != RUN or (there and not others):
            folders = [str(path) for place in places for path in find.within(place)]
            taken = {"dataset"} if folders else taken
    if not any("runs" in keys(kind) for kind in verb.kinds):
        taken.add("runs")
    rest = [
        one for one, of in zip(settings, overrides, strict=True) if of.key_or_group not in taken
    ]
    if "runs" in values and not folders and RunConfig in verb.kinds:
        place = f"{root}/${{dataset.name}}/${{model.name}}${{folder_tag:${{tag}}}}"
        rest.append(f"run_dir={compose.quoted(place, True)}")
    return folders, rest


def show(command: Command) -> int:
    """Print the configuration of a command, or of what it is composed: Hydra's --cfg and --info."""
    from omegaconf import OmegaConf

    words, verb, asked = [*command.folders, *command.settings], VERBS[command.verb], command.hydra
    if verb.settings == RUN and command.folders:
        print(folder.dump(configured(words)), end="")
        return 0
    kinds = [SettleConfig, RunConfig] if _is_race(command) else verb.kinds
    package, text = asked.get("package", ""), ""
    for kind, settings in zip(kinds, compose.parted(words, *kinds), strict=True):
        [first, *_] = compose.expand(settings, kind)
        with compose.composed(first, kind) as (cfg, used):
            if asked.get("info") == "defaults":
                text += "".join(f"{file:40} {of}\n" for of, file in used())
            elif asked.get("info"):
                places = compose.folders(first).items()
                text += "".join(f"{name}: {path}\n" for name, path in places)
            elif (part := OmegaConf.select(cfg, package) if package else cfg) is not None:
                if asked.get("resolve"):
                    OmegaConf.resolve(cfg)
                yaml = OmegaConf.to_yaml(part) if OmegaConf.is_config(part) else f"{part}\n"
                text += f"# @package {package}\n" * bool(package) + yaml
    print(text, end="")
    return 0


def call(command: Command) -> int:
    """Do what a verb does: with its settings, or for each run that they name."""
    parquet.without_pandas()
    if command.verb == "submit":
        command = _on_ray(command) or command
    verb, flags, words = VERBS[command.verb], command.flags, command.folders + command.settings
    if verb.composes:
        verb.function(words, **flags)
        return 0
    if _is_race(command):
        from bayes_at_n.pipeline.adaptive.verb import run_until

        return run_until(words, **flags)
    [kind] = verb.kinds
    many = compose.expand(command.settings, kind)
    groups = [[folder] for folder in command.folders] if kind is RunConfig else [command.folders]
    many = [[*folders, *settings] for folders in groups or [[]] for settings in many]
    if len(many) > 1:
        return _several(command, many)
    if kind is not RunConfig:
        return verb.function(compose.load_as(kind, many[0]), **flags) or 0
    elif flags.pop("dry_run", False):
        from bayes_at_n.pipeline.prepare import estimate

        run = Run(configured(many[0], f"{command.verb} prepare"))
        on_cluster = any(setting.startswith(("cluster=", "cluster.")) for setting in many[0])
        estimate.dry_run(run, on_cluster)
    else:
        from bayes_at_n.pipeline.records.following import tracked

        run = Run(configured(many[0], command.verb))
        with tracked(run) if command.verb in ("run", "generate") else nullcontext():
            verb.function(run, **flags)
    return 0


def _on_ray(command: Command) -> Command | None:
    """Return the `run` that a `submit` is whose cluster is a Ray; None: it is a Slurm."""
    found = [str(run) for folder in command.folders for run in find.within(Path(folder))]
    kinds = [SettleConfig, RunConfig] if _is_race(command) else [RunConfig]
    [first, *_] = compose.expand(compose.parted(command.settings, *kinds)[-1])
    site = [one for one in first if one.startswith(("cluster=", "cluster."))]
    cfg = configured([*found[:1], *first], "submit") if found and not site else compose.load(site)
    if cfg.cluster.address is None:
        return None
    settings = command.settings
    if found and site:  # in a folder's settings single keys are changed, no groups
        settings = [one for one in settings if one not in site]
        named = ("address", "gpus", "cpus", "workers")
        settings += [f"cluster.{key}={getattr(cfg.cluster, key)}" for key in named]
    return command._replace(verb="run", folders=found, settings=settings)


def _several(command: Command, combinations: list[list[str]]) -> int:
    """Run each of many runs in a process; but a misspelt last model is no surprise for tomorrow."""
    verb = VERBS[command.verb]
    if verb.settings == RUN:
        configs = [configured(settings, command.verb) for settings in combinations]
        places = [cfg.run_dir for cfg in configs]
        if twice := [place for place in places if places.count(place) > 1]:
            advice = "give each a tag=, or write numbers without commas"
            raise UserError(f"{twice[0]}: the folder of {len(twice)} of these runs; {advice}")
        if command.verb in ("run", "generate") and not command.flags["dry_run"]:
            from bayes_at_n.pipeline.cli import runs

            for cfg in configs if command.verb == "run" else ():
                runs.check_files(cfg)
            runs.sample(configs, command.verb)
            if configs[0].race:
                return 0
    flags = [
        flag if flag in verb.words else f"--{flag.replace('_', '-')}" + f"={of}" * (of is not True)
        for flag, of in command.flags.items()
        if of
    ]
    from bayes_at_n.pipeline.workers.resident import run_all

    return run_all([[command.verb, *settings, *flags] for settings in combinations])
