"""The help of the program and of its verbs: flags, examples, settings with their defaults."""

import argparse
import json
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
_TAB = """completion of verbs, settings and run folders by TAB, in ~/.bashrc or ~/.zshrc:
  eval "$(register-python-argcomplete bayes-at-n)"
and in fish: register-python-argcomplete --shell fish bayes-at-n | source"""


def text(name: str | None) -> str:
    """The help of a verb; without one, that of the program."""
    if name is None:
        parts = [_ALL]
        for group, names in GROUPS.items():
            lines = (f"  {verb:12} {VERBS[verb].summary}" for verb in names.split())
            parts.append("\n".join([f"{group}:", *lines]) + "\n")
        more = f"more of a verb: {PROGRAM} VERB --help; of the program: --version\n{_TAB}"
        parts.append(f"examples:\n{EXAMPLES}\n\n{more}\n")
        return "\n".join(parts).replace("  $ ", f"  {PROGRAM} ")
    verb = VERBS[name]
    parser = argparse.ArgumentParser(
        f"{PROGRAM} {name}",
        description=f"{verb.summary[0].upper()}{verb.summary[1:]}.",
        usage=f"{PROGRAM} {name} [SETTING ...] [--FLAG ...]",
        epilog=_epilog(verb),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    argv.fill(parser, verb)
    return parser.format_help().replace("  $ ", f"  {PROGRAM} ")


def _epilog(verb: Verb) -> str:
    """Examples, then the settings that concern the verb, with their defaults."""
    shown = keys(verb)
    parts = [f"examples:\n{verb.examples}"]
    if shown:
        parts.append("\n".join(_settings(verb, shown)))
    if any(key.endswith("scoring.metrics") or key == "metrics" for key in shown):
        from bayes_at_n.scoring.metrics.table import FAMILIES

        names = ", ".join(name + "8" * (name[-1] in "@^") for name in FAMILIES)
        parts.append(_filled("metrics=[...], 8 or any k (docs/scoring.md): ", names, "  "))
    if "ranking.methods" in shown:
        from bayes_at_n.pipeline.config.rankings import METHODS

        head = "ranking=A,B or ranking=all (docs/ranking.md): "
        parts.append(_filled(head, ", ".join(METHODS), "  "))
    if verb.runs_too or (verb.settings == RUN and verb.keys is not None):
        which = "beside these" if verb.runs_too else "where no folder is named"
        parts.append(f"{which}, the settings of `run`: {PROGRAM} run --help")
    return "\n\n".join(parts)


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
    if verb.keys is None:
        return {key: value for key, value in every.items() if not key.startswith("cluster.")}
    wanted = tuple(f"{key}." for key in verb.keys.split())
    return {key: value for key, value in every.items() if f"{key}.".startswith(wanted)}


def _settings(verb: Verb, shown: dict[str, Any]) -> Iterator[str]:
    """A paragraph a group: the files that it takes, and its keys."""
    from bayes_at_n.pipeline.config import compose

    groups = list(dict.fromkeys(key.partition(".")[0] for key in shown if "." in key))
    taken = [group for group in groups if verb.settings == RUN and compose.choices(group)]
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


def _default(value: object) -> str:
    """As it would be written after KEY=."""
    if value == "???":  # omegaconf.MISSING
        return "VALUE"
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return json.dumps(value) if isinstance(value, bool | dict | None) else str(value)


def _filled(head: str, words: str, indent: str = " " * 6) -> str:
    """Lines of at most 96 letters, of which the first begins with the head."""
    shape = {"break_on_hyphens": False, "break_long_words": False}
    return textwrap.fill(words, 96, initial_indent=head, subsequent_indent=indent, **shape)  # type: ignore[arg-type]
