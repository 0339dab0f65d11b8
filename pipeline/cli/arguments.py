"""What the command line takes, and its help: every verb with its flags, examples and settings."""

import argparse
import json
import pkgutil
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NoReturn

from bayes_at_n.pipeline.base.console import clean
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.cli.verbs import EXAMPLES, RUN, VERBS, Verb

_TAB = """completion of verbs, settings and run folders by TAB, in ~/.bashrc or ~/.zshrc:
  eval "$(register-python-argcomplete bayes-at-n)"
and in fish: register-python-argcomplete --shell fish bayes-at-n | source"""
# How much is said, of every verb.
_SAID = {
    ("-q", "--quiet"): "only results, warnings and errors",
    ("-v", "--verbose"): "every table in full, and a note of every step",
    ("--json",): "results as JSON, an object a line on standard output; all else on standard error",
}


class _Parser(argparse.ArgumentParser):
    """What it says beside arguments is looked up when its help is asked for."""

    verb: Verb | None = None

    def error(self, message: str) -> NoReturn:
        super().error(clean(message))  # a name that a shell has put in for a star

    def format_help(self) -> str:
        more = f"settings of a verb, and what else it does: {PROGRAM} VERB --help\n{_TAB}"
        self.epilog = _epilog(self.verb) if self.verb else f"examples:\n{EXAMPLES}\n\n{more}"
        return super().format_help().replace("  $ ", f"  {PROGRAM} ")


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    shape: Any = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    command_line = _Parser(
        prog=PROGRAM,
        description="Evaluate reasoning models: N trials of every question, graded and scored with"
        " credible intervals.",
        **shape,
    )
    command_line.add_argument("--version", action="store_true", help="the version and the commit")
    verbs = command_line.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for name, verb in VERBS.items():
        said = verb.summary[0].upper() + verb.summary[1:] + "."
        sub = verbs.add_parser(
            name, prog=f"{PROGRAM} {name}", help=verb.summary, description=said, **shape
        )
        sub.verb = verb
        sub.add_argument("settings", nargs="*", metavar="SETTING", help=verb.takes)
        for flag, options in verb.flags:
            sub.add_argument(flag, **options)
        for names, summary in _SAID.items():
            sub.add_argument(*names, action="store_true", help=summary)
    return command_line


def _epilog(verb: Verb) -> str:
    """Examples, then the settings that concern the verb, with their defaults."""
    shown = keys(verb)
    parts = [f"examples:\n{verb.examples}"]
    if shown:
        parts.append("\n".join(_settings_help(verb, shown)))
    if any(key.endswith("scoring.metrics") or key == "metrics" for key in shown):
        parts.append(_metrics_help())
    if "ranking.methods" in shown:
        from bayes_at_n.pipeline.config.rankings import METHODS

        head = "methods, for ranking=A,B or ranking=all (docs/ranking.md): "
        parts.append(_filled(head, ", ".join(METHODS), "  "))
    if verb.runs_too or (verb.settings == RUN and verb.keys is not None):
        which = "beside these" if verb.runs_too else "where no folder is named"
        parts.append(f"{which}, the settings of `run`: {PROGRAM} run --help")
    return "\n\n".join(parts)


def kind_of(verb: Verb) -> type[Any]:
    """The dataclass of a verb's settings, imported now."""
    kind: type[Any] = pkgutil.resolve_name(verb.settings)
    return kind


def keys(verb: Verb) -> dict[str, Any]:
    """Every key that concerns a verb, with its default.

    >>> keys(VERBS["verify"])["labels.sample"], "model.id" in keys(VERBS["verify"])
    (None, False)
    """
    from bayes_at_n.pipeline.config.overrides import flat

    every = dict(flat(asdict(kind_of(verb)())))
    every.pop("folders", None)  # positional
    if "run_dir" in every:
        every["run_dir"] = "runs/DATASET/MODEL[-TAG]"
    if verb.keys is None:
        return {key: value for key, value in every.items() if not key.startswith("cluster.")}
    wanted = tuple(f"{key}." for key in verb.keys.split())
    return {key: value for key, value in every.items() if f"{key}.".startswith(wanted)}


def _settings_help(verb: Verb, shown: dict[str, Any]) -> Iterator[str]:
    """A paragraph a group: the files that it takes, and its keys."""
    from bayes_at_n.pipeline.config import compose

    groups = list(dict.fromkeys(key.partition(".")[0] for key in shown if "." in key))
    taken = [group for group in groups if verb.settings == RUN and group in compose.groups()]
    yield "settings KEY=VALUE with their defaults (GROUP. may be left out of what one group has):"
    if taken:
        yield "GROUP=CHOICE takes configs/GROUP/CHOICE.yaml, whose values go before these"
    for group in groups:
        if group in taken:
            first = compose.default(group)
            others = ", ".join(name for name in compose.choices(group) if name != first)
            yield _filled(f"  {group}={first or 'all'}, or ", others)
        own = (f"{key}={_default(shown[key])}" for key in shown if key.startswith(f"{group}."))
        yield _filled("      " if group in taken else "  ", "  ".join(own))
    if alone := [f"{key}={_default(shown[key])}" for key in shown if "." not in key]:
        yield _filled("  ", "  ".join(alone))


def _metrics_help() -> str:
    """How metrics are named."""
    from bayes_at_n.scoring.metrics.table import FAMILIES

    names = ", ".join(name + "8" * (name[-1] in "@^") for name in FAMILIES)
    head = "metrics, for [scoring.]metrics=[...], 8 or any k (docs/scoring.md): "
    return _filled(head, names, "  ")


def _default(value: object) -> str:
    """As it would be written after KEY=."""
    if value == "???":  # omegaconf.MISSING
        return "VALUE"
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return json.dumps(value) if isinstance(value, bool | dict | None) else str(value)


def _filled(head: str, words: str, indent: str = " " * 6) -> str:
    """Lines of at most 96 letters, of which the first begins with the head."""
    return textwrap.fill(
        words,
        96,
        initial_indent=head,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
