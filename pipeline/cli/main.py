"""The command line: what a command does, and errors as one readable line."""

import os
import pkgutil
import sys
from contextlib import nullcontext
from typing import Any

from bayes_at_n.pipeline.base.console import fail, say
from bayes_at_n.pipeline.base.errors import DamagedData, Interrupted, UserError, did_you_mean
from bayes_at_n.pipeline.base.program import PROGRAM, set_environment
from bayes_at_n.pipeline.cli.arguments import keys, kind_of, parser
from bayes_at_n.pipeline.cli.verbs import GONE, RUN, VERBS


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Returns the exit status: 0 done, 1 damaged data set aside or a failure that may not come again,
    2 an error of the user's, 85 saved and to be started again, 86 the engine hung, 128 + n stopped
    by signal n.
    """
    command_line = parser()
    if "_ARGCOMPLETE" in os.environ:
        from bayes_at_n.pipeline.cli.completion import answer

        answer(command_line)
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] not in VERBS and not arguments[0].startswith("-"):
        name = GONE.get(arguments[0], arguments[0])
        fail(f"{arguments[0]}: no such verb ({did_you_mean(name, VERBS)})")
        return 2
    # Settings may stand on both sides of a flag.
    known, more_settings = command_line.parse_known_args(arguments)
    if unknown := [argument for argument in more_settings if argument.startswith("-")]:
        command_line.error(f"unrecognized arguments: {' '.join(unknown)}")
    flags = vars(known)
    verb, settings = flags.pop("verb"), [*flags.pop("settings", []), *more_settings]
    if flags.pop("version"):
        from bayes_at_n.pipeline.base.environment import commit, version

        print(PROGRAM, version("bayes-at-n") or "(not installed)", commit() or "")
        return 0
    if verb is None:
        command_line.print_help()
        return 0
    say(*[word for word in ("quiet", "verbose", "json") if flags.pop(word)])
    set_environment()
    try:
        return _call(verb, settings, flags)
    except (UserError, Interrupted, DamagedData) as error:
        fail(str(error))
        return error.exit_code
    except OSError as error:
        place = "runs" if verb == "import" else "out"
        elsewhere = f"; or name another place, {place}=FOLDER" * (place in keys(VERBS[verb]))
        mended = "mend the disk (free space, permissions), then the same command continues"
        if isinstance(error, FileExistsError | NotADirectoryError):
            mended = "a folder should be there: move the file"
        fail(f"{error}; {mended}{elsewhere}")
        return 1
    except KeyboardInterrupt:
        kept = "finished attempts that were written are kept"
        fail(f"quit at once; {kept if verb != 'export' else 'nothing half-written is left'}")
        return 130


def _call(name: str, settings: list[str], flags: dict[str, Any]) -> int:
    """The verb's function on what its settings say."""
    from bayes_at_n.pipeline.store import parquet

    parquet.without_pandas()
    verb = VERBS[name]
    flags |= {word: word in settings for word in verb.words}
    settings = [setting for setting in settings if setting not in verb.words]
    if verb.load is not None:
        verb.function(pkgutil.resolve_name(verb.load)(settings), **flags)
        return 0
    from bayes_at_n.pipeline.config import overrides, sweep

    if verb.settings != RUN:
        verb.function(overrides.load(kind_of(verb), settings), **flags)
        return 0
    from bayes_at_n.pipeline.cli.runs import configured
    from bayes_at_n.pipeline.config.settle import is_until
    from bayes_at_n.pipeline.store.runfolder import Run
    from bayes_at_n.pipeline.tracking.following import tracked

    if name == "run" and any(map(is_until, settings)):
        from bayes_at_n.pipeline.settle.verb import run_until

        return run_until(settings, **flags)
    combinations = sweep.expand(settings)
    if len(combinations) > 1:
        return _several(name, combinations, flags)
    preview_only = flags.pop("dry_run", False)
    run = Run(configured(settings, f"{name} prepare" if preview_only else name))
    if preview_only:
        from bayes_at_n.pipeline.prepare import costs, preview

        elsewhere = any(setting.startswith(("cluster=", "cluster.")) for setting in settings)
        used = costs.of_cluster(run.cfg.cluster) if elsewhere else costs.here(run.cfg)
        preview.preview(run, used)
        return 0
    with tracked(run) if name in ("run", "generate") else nullcontext():
        verb.function(run, **flags)
    return 0


def _several(name: str, combinations: list[list[str]], flags: dict[str, Any]) -> int:
    """model=a,b and the like: one process after the other."""
    from bayes_at_n.pipeline.cli.runs import configured
    from bayes_at_n.pipeline.config import sweep

    # Now, as a misspelt last model is no surprise for tomorrow.
    places = [configured(settings, name).run_dir for settings in combinations]
    if twice := [place for place in places if places.count(place) > 1]:
        raise UserError(
            f"{twice[0]}: two of these {len(places)} runs have this folder; a comma stands between"
            " values, each a run of its own: tell them apart by tag=, or leave it out of numbers"
        )
    words = VERBS[name].words
    options = {
        flag if flag in words else f"--{flag.replace('_', '-')}": value
        for flag, value in flags.items()
        if value
    }
    if of_file := [option for option, value in options.items() if value is not True]:
        raise UserError(f"{' '.join(of_file)}: for one file; give every setting one value")
    return sweep.run_all(name, combinations, list(options))
