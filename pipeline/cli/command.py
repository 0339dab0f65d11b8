"""A command line: parsed into verb, run folders, settings and flags, and executed."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base.console import never_silent
from bayes_at_n.pipeline.base.errors import UserError, did_you_mean
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.cli.verbs import RUN, VERBS, Parser, Verb, declare
from bayes_at_n.pipeline.config import compose, folder
from bayes_at_n.pipeline.config.checks import keys
from bayes_at_n.pipeline.config.folder import configured
from bayes_at_n.pipeline.config.multirun import SettleConfig, of_key
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import selection, shards
from bayes_at_n.pipeline.store.runfolder import Run


class Command(NamedTuple):
    """A parsed command line."""

    verb: str
    folders: list[str]
    settings: list[str]
    flags: dict[str, Any]  # keyword arguments of the verb's function
    hydra: dict[str, Any]  # those of cfg, info, resolve that were given
    modes: list[str]  # of console output: quiet, verbose, json


def parse(arguments: Sequence[str]) -> Command:
    """Parse a command line that begins with a verb."""
    name, *rest = arguments
    if name not in VERBS:
        kind = "option" if name[:1] == "-" else "verb"
        raise UserError(f"{name}: no such {kind} ({did_you_mean(name, VERBS)})")
    verb, parser = VERBS[name], Parser(f"{PROGRAM} {name}", allow_abbrev=False)
    declare(parser, verb)
    given = vars(parser.parse_intermixed_args(rest))
    words, config_dir, _ = (given.pop(key) for key in ("settings", "config_dir", "multirun"))
    modes = [word for word in ("quiet", "verbose", "json") if given.pop(word)]
    hydra = {key: value for key in ("cfg", "info", "resolve") if (value := given.pop(key))}
    folders, settings = compose.folders_of(words)
    if config_dir is not None:
        more = compose.quoted(f"file://{os.path.abspath(config_dir)}")
        settings.append(f"hydra.searchpath=[{more}]")
    if settings:  # this imports Hydra
        selected, settings = _select_runs(verb, settings, bool(folders or given.get("file")))
        folders += selected
    return Command(name, folders, settings, given, hydra, modes)


def _is_race(command: Command) -> bool:
    """Return whether a command samples until a decision, as `settle` does."""
    return command.verb in ("run", "submit") and bool(of_key("until", command.settings))


def _select_runs(verb: Verb, settings: list[str], named: bool) -> tuple[list[str], list[str]]:
    """Turn `runs=`, and `dataset=` of a verb that reads runs, into run folders or a `run_dir`.

    `named`: whether runs are named already. Returns folders and the other settings.
    """
    overrides = [compose.parse(setting) for setting in settings]
    values, folders, used = {one.key_or_group: one.value() for one in overrides}, [], set[str]()
    root, names = str(values.get("runs", "runs")), values.get("dataset", [])
    names = getattr(names, "list", names)  # a,b is a sweep with a list
    if verb.reads and not named:
        if str(names).startswith("suite/"):
            names = [*compose.suite(names, compose.folders(settings))]
        names = names if isinstance(names, list) else [names]
        base, every = Path(root).expanduser(), verb.settings == RUN and "runs" in values
        datasets = [base / str(name) for name in names] or [base] * every
        # A verb on one run means all runs of a dataset only if no other setting selects a run.
        others = {*values} & {*compose.GROUPS, "tag", "run_dir", "model.id"} - {"dataset"}
        if verb.settings != RUN or not others:
            try:
                folders = [str(run) for path in datasets for run in selection.runs_in(path)]
            except UserError:
                if verb.settings != RUN or not names:
                    raise
            used = {"dataset"} if folders else used
    if not any("runs" in keys(kind) for kind in verb.kinds):
        used.add("runs")
    pairs = zip(settings, overrides, strict=True)
    rest = [setting for setting, override in pairs if override.key_or_group not in used]
    if "runs" in values and not folders and RunConfig in verb.kinds:
        run_dir = f"{root}/${{dataset.name}}/${{model.name}}${{folder_tag:${{tag}}}}"
        rest.append(f"run_dir={compose.quoted(run_dir, True)}")
    return folders, rest


def show(command: Command) -> int:
    """Print the configuration of a command (--cfg) or its sources (--info), as Hydra does."""
    from omegaconf import OmegaConf

    words, verb, hydra = [*command.folders, *command.settings], VERBS[command.verb], command.hydra
    if verb.settings == RUN and command.folders:
        print(folder.dump(configured(words)), end="")
        return 0
    kinds = [SettleConfig, RunConfig] if _is_race(command) else verb.kinds
    text = ""
    for kind, settings in zip(kinds, compose.split(words, *kinds), strict=True):
        [first, *_] = compose.expand(settings, kind)
        with compose.composed(first, kind) as (cfg, used):
            if hydra.get("info") == "defaults":
                text += "".join(f"{file:40} {group}\n" for group, file in used())
            elif hydra.get("info"):
                roots = compose.folders(first).items()
                text += "".join(f"{name}: {path}\n" for name, path in roots)
            else:
                text += OmegaConf.to_yaml(cfg, resolve=bool(hydra.get("resolve")))
    print(text, end="")
    return 0


def call(command: Command) -> int:
    """Call a verb's function with its settings, or once for each run that they select."""
    shards.without_pandas()
    if command.verb == "submit":
        command = _on_ray(command) or command
    verb, flags, words = VERBS[command.verb], command.flags, command.folders + command.settings
    if verb.composes:
        with nullcontext() if command.verb == "status" else never_silent(command.verb):
            verb.function(words, **flags)
        return 0
    if command.verb == "prefetch" and flags.pop("check"):
        from bayes_at_n.pipeline.prepare import catalogue

        return catalogue.check(words)
    if _is_race(command):
        from bayes_at_n.pipeline.adaptive.settle import run_until

        with never_silent(command.verb):
            return run_until(words, **flags)
    [kind] = verb.kinds
    groups = [[folder] for folder in command.folders] if kind is RunConfig else [command.folders]
    combinations = compose.expand(command.settings, kind)
    calls = [[*folders, *settings] for folders in groups or [[]] for settings in combinations]
    if len(calls) > 1:
        return _call_each(command, calls)
    with never_silent(command.verb):
        return _call_one(command, calls[0]) or 0


def _call_one(command: Command, settings: list[str]) -> int | None:
    """Call a verb's function for one combination of settings."""
    verb, flags = VERBS[command.verb], command.flags
    [kind] = verb.kinds
    if kind is not RunConfig:
        return verb.function(compose.load_as(kind, settings), **flags)  # type: ignore[no-any-return]
    if flags.pop("dry_run", False):
        from bayes_at_n.pipeline.verify import stage

        run = Run(configured(settings, f"{command.verb} prepare"))
        on_cluster = any(setting.startswith(("cluster=", "cluster.")) for setting in settings)
        stage.dry_run(run, command.verb, on_cluster)
    else:
        from bayes_at_n.pipeline.records.trackers import tracked

        run = Run(configured(settings, command.verb))
        with tracked(run) if command.verb in ("run", "generate") else nullcontext():
            verb.function(run, **flags)
    return 0


def _on_ray(command: Command) -> Command | None:
    """Return the `run` command that a `submit` to a Ray cluster stands for; None for Slurm."""
    runs = [str(run) for folder in command.folders for run in selection.runs_in(Path(folder))]
    kinds = [SettleConfig, RunConfig] if _is_race(command) else [RunConfig]
    [first, *_] = compose.expand(compose.split(command.settings, *kinds)[-1])
    site = [one for one in first if one.startswith(("cluster=", "cluster."))]
    cfg = configured([*runs[:1], *first], "submit") if runs and not site else compose.load(site)
    if cfg.cluster.address is None:
        return None
    settings = command.settings
    if runs and site:  # a run folder's settings change by single keys, not by groups
        settings = [one for one in settings if one not in site]
        keys_of_ray = ("address", "gpus", "cpus", "workers")
        settings += [f"cluster.{key}={getattr(cfg.cluster, key)}" for key in keys_of_ray]
    return command._replace(verb="run", folders=runs, settings=settings)


def _call_each(command: Command, calls: list[list[str]]) -> int:
    """Run the command for each combination of settings in one process, after checking all."""
    verb = VERBS[command.verb]
    if verb.settings == RUN:
        with never_silent(command.verb):
            configs = [configured(settings, command.verb) for settings in calls]
        run_dirs = [cfg.run_dir for cfg in configs]
        if repeated := [run_dir for run_dir in run_dirs if run_dirs.count(run_dir) > 1]:
            advice = "give each its own tag=, or write numbers without commas"
            shared = f"{len(repeated)} of these runs share this folder"
            raise UserError(f"{repeated[0]}: {shared}; {advice}")
        if command.verb in ("run", "generate") and not command.flags["dry_run"]:
            from bayes_at_n.pipeline.cli import runs

            with never_silent(command.verb):
                for cfg in configs if command.verb == "run" else ():
                    runs.check_files(cfg)
                runs.sample(configs, command.verb)
            if configs[0].race:
                return 0
    given = {f"--{flag.replace('_', '-')}": v for flag, v in command.flags.items() if v}
    flags = [flag if value is True else f"{flag}={value}" for flag, value in given.items()]
    from bayes_at_n.pipeline.workers.resident import run_all

    return run_all([[command.verb, *settings, *flags] for settings in calls])
