"""The program: help, version, errors in one line, and a process that runs many commands."""

import gc
import json
import os
import signal
import sys

from bayes_at_n.pipeline.base.console import fail, set_modes
from bayes_at_n.pipeline.base.errors import DamagedData, Interrupted, UserError
from bayes_at_n.pipeline.base.program import PROGRAM, run_and_exit, set_environment
from bayes_at_n.pipeline.cli.verbs import VERBS


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Returns the exit status: 0 done, 1 damaged data set aside or a failure that may pass, 2 a user
    error, 3 and 4 NO-GO and INCONCLUSIVE of a gate, 85 saved and to be started again, 86 the engine
    hung, 128 + n stopped by signal n; the worst one of several runs.
    """
    if "_ARGCOMPLETE" in os.environ:
        from bayes_at_n.pipeline.cli.help import complete

        complete()
    arguments = sys.argv[1:] if arguments is None else arguments
    if {"-V", "--version"} & {*arguments}:
        from bayes_at_n.pipeline.base.program import commit, version

        print(PROGRAM, version("bayes-at-n") or "(not installed)", commit() or "")
        return 0
    wants_help = {"-h", "--help"} & {*arguments} or arguments[:1] == ["help"]
    if not arguments or wants_help:
        from bayes_at_n.pipeline.cli.help import text

        print(text(next((word for word in arguments if word in VERBS), None)), end="")
        return 0
    gc.disable()  # imports make no garbage: this saves a tenth of the time of a short command
    from bayes_at_n.pipeline.cli import command as commands

    gc.enable()
    try:
        command = commands.parse(arguments)
        set_modes(*command.modes)
        set_environment()
        return commands.show(command) if command.hydra else commands.call(command)
    except (UserError, Interrupted, DamagedData) as error:
        fail(str(error))
        return error.exit_code
    except OSError as error:
        why = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        fail(f"{why}; fix that or use another path, then repeat the command to continue")
        return 1
    except KeyboardInterrupt:
        fail("stopped; finished attempts are kept, and no file is half-written")
        return 130


def program() -> None:
    """Run this process's command, and end the process."""
    run_and_exit(main)


def serve(parent: int, statuses: int) -> int:
    """Run the command of each line of standard input; an engine stays loaded between them.

    `parent`: a process with which this one ends; `statuses`: file descriptor for exit statuses.
    """
    from bayes_at_n.pipeline import engines
    from bayes_at_n.pipeline.base import children

    children.die_with(parent)
    with engines.keeping(), os.fdopen(statuses, "w", buffering=1) as file:
        os.set_inheritable(statuses, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent ends it
        for line in sys.stdin:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            status = main(json.loads(line))
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print(status, file=file)
    return 0


def resident() -> None:
    """Run the commands of a parent process, and end the process."""
    run_and_exit(lambda: serve(*map(int, sys.argv[1:])))
