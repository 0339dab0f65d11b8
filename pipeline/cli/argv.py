"""What every verb takes on a command line, read by argparse."""

import argparse
from typing import Any, NoReturn

from bayes_at_n.pipeline.base.console import clean
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli.verbs import RUN, Verb

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
