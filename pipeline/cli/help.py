"""The help of the program and of its verbs: flags, examples, settings with their defaults."""

import argparse
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.cli import argv
from bayes_at_n.pipeline.cli.verbs import EXAMPLES, GROUPS, RUN, VERBS, Verb

_ALL = f"""\
usage: {PROGRAM} VERB [FOLDER ...] [GROUP=CHOICE ...] [KEY=VALUE ...] [--help]

Evaluate reasoning models: N trials of every question, graded and scored with credible intervals.
"""
_MORE = f"""\
examples:
{EXAMPLES}

more of a verb: {PROGRAM} VERB --help; of the program: --version
completion of verbs, settings and run folders by TAB, in ~/.bashrc or ~/.zshrc:
  eval "$(register-python-argcomplete bayes-at-n)"
and in fish: register-python-argcomplete --shell fish bayes-at-n | source
"""


def text(name: str | None) -> str:
    """The help of a verb; without one, that of the program."""
    if name is None:
        lines = [
            "\n".join([f"{group}:", *(f"  {v:12} {VERBS[v].summary}" for v in names.split()), ""])
            for group, names in GROUPS.items()
        ]
        return "\n".join([_ALL, *lines, _MORE]).replace("  $ ", f"  {PROGRAM} ")
    verb = VERBS[name]
    parser = argparse.ArgumentParser(
        f"{PROGRAM} {name}",
        f"{PROGRAM} {name} [SETTING ...] [--FLAG ...]",
        f"{verb.summary[0].upper()}{verb.summary[1:]}.",
        "\n\n".join(_more(verb)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    argv.fill(parser, verb)
    return parser.format_help().replace("  $ ", f"  {PROGRAM} ")


def _more(verb: Verb) -> Iterator[str]:
    """Examples, then the settings that concern the verb, with their defaults."""
    from bayes_at_n.pipeline.config import compose

    shown = keys(verb)
    yield f"examples:\n{verb.examples}"
    groups = dict.fromkeys(key.partition(".")[0] for key in shown)
    for group in groups if verb.settings == RUN else ():
        if names := compose.choices(group):
            yield _filled(f"{group}={compose.default(group) or 'all'}, or ", ", ".join(names))
    if shown:
        values = (f"{key}={_default(value)}" for key, value in shown.items())
        head = "settings KEY=VALUE with their defaults (GROUP. may be left out):\n"
        yield head + _filled("  ", "  ".join(values))
    if any(key.split(".")[-1] == "metrics" for key in shown):
        from bayes_at_n.scoring.metrics.table import FAMILIES

        yield _filled("metrics, with 8 or any k: ", ", ".join(FAMILIES))
    if "ranking.methods" in shown:
        from bayes_at_n.pipeline.config.rankings import METHODS

        yield _filled("ranking=A,B or all: ", ", ".join(METHODS))
    if verb.runs_too or (verb.settings == RUN and verb.keys is not None):
        yield f"and the settings of `run`: {PROGRAM} run --help"


def keys(verb: Verb) -> dict[str, Any]:
    """Every key that concerns a verb, with its default.

    >>> keys(VERBS["verify"])["labels.sample"], "model.id" in keys(VERBS["verify"])
    (None, False)
    """
    from bayes_at_n.pipeline.config.overrides import flat

    every = dict(flat(asdict(verb.kind())))
    every.pop("folders", None)  # positional
    if "run_dir" in every:
        every["run_dir"] = "runs/DATASET/MODEL[-TAG]"
    wanted = tuple(f"{key}." for key in verb.keys.split()) if verb.keys is not None else ""
    mine = {key: value for key, value in every.items() if f"{key}.".startswith(wanted)}
    return {k: v for k, v in mine.items() if verb.keys or not k.startswith("cluster.")}


def _default(value: object) -> str:
    """As it would be written after KEY=."""
    named = {"???": "VALUE", "None": "null", "True": "true", "False": "false"}
    text = f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)
    return named.get(text, text)


def _filled(head: str, words: str) -> str:
    """Lines of at most 96 letters, of which the first begins with the head."""
    return textwrap.fill(
        words, 98, initial_indent=head, subsequent_indent="  ", break_on_hyphens=False
    )
