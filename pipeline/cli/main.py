"""The command line: what a command does, and errors as one readable line."""

import os
import pkgutil
import sys
from contextlib import nullcontext

from bayes_at_n.pipeline.base.console import fail, say
from bayes_at_n.pipeline.base.errors import DamagedData, Interrupted, UserError
from bayes_at_n.pipeline.base.program import PROGRAM, set_environment
from bayes_at_n.pipeline.cli import argv
from bayes_at_n.pipeline.cli.argv import Command
from bayes_at_n.pipeline.cli.verbs import RUN, VERBS


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Returns the exit status: 0 done, 1 damaged data set aside or a failure that may not come again,
    2 an error of the user's, 85 saved and to be started again, 86 the engine hung, 128 + n stopped
    by signal n; of many runs the worst.
    """
    if "_ARGCOMPLETE" in os.environ:
        from bayes_at_n.pipeline.cli.help import complete

        complete()
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--version" in arguments:
        from bayes_at_n.pipeline.base.environment import commit, version

        print(PROGRAM, version("bayes-at-n") or "(not installed)", commit() or "")
        return 0
    if not arguments or {"-h", "--help"} & {*arguments}:
        from bayes_at_n.pipeline.cli.help import text

        print(text(arguments[0] if arguments and arguments[0] in VERBS else None), end="")
        return 0
    try:
        command = argv.parse(arguments)
        say(*command.said)
        set_environment()
        return _show(command) if command.hydra else _call(command)
    except (UserError, Interrupted, DamagedData) as error:
        fail(str(error))
        return error.exit_code
    except OSError as error:
        fail(f"{error}; mend it or name another place, then the same command continues")
        return 1
    except KeyboardInterrupt:
        fail("quit at once; nothing half-written is left, and finished attempts are kept")
        return 130


def _show(command: Command) -> int:
    """Print the configuration of a command, or of what it is composed: Hydra's --cfg and --info."""
    from bayes_at_n.pipeline.cli.runs import configured
    from bayes_at_n.pipeline.config import compose, sweep
    from bayes_at_n.pipeline.config.folder import dump

    words, verb = [*command.folders, *command.settings], VERBS[command.verb]
    if verb.settings == RUN and command.folders:
        print(dump(configured(words)), end="")
        return 0
    kinds = argv.kinds_of(verb, command.settings)
    for kind, settings in zip(kinds, compose.parted(words, *kinds), strict=True):
        print(compose.shown(sweep.expand(settings, kind)[0], kind, command.hydra), end="")
    return 0


def _call(command: Command) -> int:
    """Do what a verb does: with its settings, or for each run that they name."""
    from bayes_at_n.pipeline.store import parquet

    parquet.without_pandas()
    verb, flags = VERBS[command.verb], command.flags
    words = [*command.folders, *command.settings]
    if verb.load is not None:
        verb.function(pkgutil.resolve_name(verb.load)(words), **flags)
        return 0
    from bayes_at_n.pipeline.config import compose, sweep
    from bayes_at_n.pipeline.config.settle import is_until

    if command.verb == "run" and any(map(is_until, command.settings)):
        from bayes_at_n.pipeline.settle.verb import run_until

        return run_until(words, **flags)
    of_run, many = verb.settings == RUN, sweep.expand(command.settings, verb.kind)
    groups = [[folder] for folder in command.folders] if of_run else [command.folders]
    many = [[*folders, *settings] for folders in groups or [[]] for settings in many]
    if len(many) > 1:
        return _several(command, many)
    if of_run:
        _of_run(command, many[0])
    else:
        verb.function(compose.load_as(verb.kind, many[0]), **flags)
    return 0


def _of_run(command: Command, settings: list[str]) -> None:
    """Do what a verb does of one run, or with `--dry-run` show what that would be."""
    from bayes_at_n.pipeline.cli.runs import configured
    from bayes_at_n.pipeline.store.runfolder import Run
    from bayes_at_n.pipeline.tracking.following import tracked

    flags = command.flags
    if flags.pop("dry_run", False):
        from bayes_at_n.pipeline.prepare import costs, preview

        run = Run(configured(settings, f"{command.verb} prepare"))
        elsewhere = any(setting.startswith(("cluster=", "cluster.")) for setting in settings)
        used = costs.of_cluster(run.cfg.cluster) if elsewhere else costs.here(run.cfg)
        preview.preview(run, used)
        return
    run = Run(configured(settings, command.verb))
    with tracked(run) if command.verb in ("run", "generate") else nullcontext():
        VERBS[command.verb].function(run, **flags)


def _several(command: Command, combinations: list[list[str]]) -> int:
    """Many runs: one process after the other."""
    from bayes_at_n.pipeline.cli.runs import configured
    from bayes_at_n.pipeline.config import sweep

    verb = VERBS[command.verb]
    if verb.settings == RUN:  # now, as a misspelt last model is no surprise for tomorrow
        places = [configured(settings, command.verb).run_dir for settings in combinations]
        if twice := [place for place in places if places.count(place) > 1]:
            raise UserError(
                f"{twice[0]}: several of these {len(places)} runs have this folder; tell them apart"
                " by tag=, or leave the comma out of numbers"
            )
    flags = [
        flag if flag in verb.words else f"--{flag.replace('_', '-')}" + f"={of}" * (of is not True)
        for flag, of in command.flags.items()
        if of
    ]
    return sweep.run_all(command.verb, combinations, flags)
