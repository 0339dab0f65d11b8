"""The help of the program and of its verbs, and what a shell offers after TAB."""

import argparse
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.cli.verbs import GROUPS, RUN, VERBS, Verb, declare

_wrapped = partial(textwrap.fill, width=98, subsequent_indent="  ", break_on_hyphens=False)
_LINE = f"  {PROGRAM} "  # how an example begins
_WRITTEN = {"???": "VALUE", "None": "null", "True": "true", "False": "false"}  # after KEY=

_ALL = """\
usage: {program} VERB [FOLDER ...] [GROUP=CHOICE ...] [KEY=VALUE ...] [--help]

Evaluate reasoning models: N trials of every question, graded and scored with credible intervals.

{verbs}examples:
{examples}

`{program} VERB --help` describes a verb; `{program} --version` prints the version
TAB completion of verbs, settings and run folders, in ~/.bashrc or ~/.zshrc:
  eval "$(register-python-argcomplete bayes-at-n)"
and in fish: register-python-argcomplete --shell fish bayes-at-n | source
"""


def text(name: str | None) -> str:
    """Return the help of a verb; without one, that of the program."""
    if name is None:
        verbs = ""
        for group, names in GROUPS.items():
            lines = (f"  {verb:12} {VERBS[verb].summary}\n" for verb in names.split())
            verbs += f"{group}:\n{''.join(lines)}\n"
        return _ALL.format(
            program=PROGRAM, verbs=verbs, examples=textwrap.indent(VERBS["run"].examples, _LINE)
        )
    verb = VERBS[name]
    parser = argparse.ArgumentParser(
        f"{PROGRAM} {name}",
        f"{PROGRAM} {name} [SETTING ...] [--FLAG ...]",
        f"{verb.summary[0].upper()}{verb.summary[1:]}.",
        "\n\n".join([f"examples:\n{textwrap.indent(verb.examples, _LINE)}", *_settings(verb)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    takes = ["GROUP=CHOICE"] * (verb.settings == RUN) + ["KEY=VALUE"]
    takes += ["run folders"] * _takes_folders(verb)
    takes += [f"{word} ({verb.flags[word]})" for word in verb.words]
    declare(parser, verb, ", or ".join(takes))
    return parser.format_help()


def _takes_folders(verb: Verb) -> bool:
    return verb.settings == RUN or hasattr(verb.kinds[0](), "folders")


def _settings(verb: Verb) -> Iterator[str]:
    """Yield the settings that concern the verb, with their defaults."""
    from bayes_at_n.pipeline.config import compose

    shown = keys(verb)
    of_run = {key.partition(".")[0] for key in shown if verb.settings == RUN}
    for group, choice in compose.GROUPS.items():
        if group in of_run:
            yield _wrapped(f"{group}: {', '.join(compose.files(group))}; default {choice}")
    written = ""
    for key, value in shown.items():
        text = f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)
        written += f"  {key}={_WRITTEN.get(text, text)}"
    if shown:
        yield f"settings and their defaults (GROUP. may be omitted):\n{_wrapped(written)}"
    if RUN in verb.settings and verb is not VERBS["run"]:
        yield f"also the settings of `run`: {PROGRAM} run --help"


def keys(verb: Verb) -> dict[str, Any]:
    """Return every key that concerns a verb, with its default.

    >>> keys(VERBS["verify"])["labels.sample"], "model.id" in keys(VERBS["verify"])
    (None, False)
    """
    from bayes_at_n.pipeline.config.checks import keys as keys_of

    groups = tuple(f"{key}." for key in verb.keys.split()) if verb.keys is not None else ""
    left_out = ("folders.",) if verb.keys else ("folders.", "cluster.")
    known, defaults = keys_of(verb.kinds[0]), verb.kinds[0]()
    mine = [key for key in known if f"{key}.".startswith(groups) and not is_dataclass(known[key])]
    return {k: attrgetter(k)(defaults) for k in mine if not f"{k}.".startswith(left_out)}


def complete() -> None:
    """Answer a shell that asks what may follow, and end the process."""
    import argcomplete
    from argcomplete.completers import FilesCompleter

    def value(prefix: str, action: Any, parsed_args: Any, **_: Any) -> Iterable[str]:
        files: Iterable[str] = FilesCompleter()(prefix)
        return files if action.option_strings else offered(parsed_args.verb, prefix)

    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb")
    for name, verb in VERBS.items():
        declare(verbs.add_parser(name), verb)
    argcomplete.autocomplete(parser, False, default_completer=value)  # type: ignore[arg-type]


def offered(name: str, prefix: str) -> list[str]:
    """Return the settings and run folders that may stand behind a verb and begin so.

    >>> [*offered("run", "sampling=p"), *offered("run", "model=limo-v2,qwen3-3")]
    ['sampling=paper', 'model=limo-v2,qwen3-30b']
    """
    from bayes_at_n.pipeline.config import compose

    verb, (key, given, text) = VERBS[name], prefix.partition("=")
    of_run, known = RUN in verb.settings, keys(verb)
    groups = [*compose.GROUPS, "rubric"] if of_run else ["rubric"]
    if given:
        before, comma, _ = text.rpartition(",")
        names = compose.files(key) if key in groups else []
        if key in ("dataset", "model") and not of_run:  # of the runs there are
            level = "[!_]*/" if key == "dataset" else "[!_]*/[!_]*/"
            names = sorted({path.name for path in Path("runs").glob(level)})
        every = [f"{key}={before}{comma}{one}" for one in names]
    else:
        concern = {one.partition(".")[0] for one in known} | {"model", "dataset"}
        every = [f"{group}=" for group in groups if verb.composes or group in concern]
        every += [f"{one}=" for one in known if prefix or not of_run]  # of `run` there are 150
        every += _folders(prefix) if _takes_folders(verb) else []
    return [found for found in every if found.startswith(prefix)]


def _folders(prefix: str) -> Iterator[str]:
    """Yield run folders, and folders with runs at most two levels below."""
    place = prefix[: prefix.rfind("/") + 1]
    for path in sorted(Path(place or ".").expanduser().glob("[!.]*/")):
        if (path / "questions.parquet").is_file():
            yield f"{place}{path.name}"
        elif any(next(path.glob(f"{way}/questions.parquet"), None) for way in ("*", "*/*")):
            yield f"{place}{path.name}/"
