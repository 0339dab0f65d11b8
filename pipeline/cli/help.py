"""The help of the program and its verbs, and TAB completion."""

import argparse
import inspect
import re
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
_LINE = f"  {PROGRAM} "  # prefix of an example
_MEANING = 42  # the column of a setting's meaning
_WRITTEN = {"???": "VALUE", "None": "null", "True": "true", "False": "false"}  # as after KEY=

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
    """Return the help of a verb, or of the program without one."""
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
    declare(parser, verb, ", or ".join(takes))
    return parser.format_help()


def _takes_folders(verb: Verb) -> bool:
    return verb.settings == RUN or hasattr(verb.kinds[0](), "folders")


def _settings(verb: Verb) -> Iterator[str]:
    """Yield the settings of a verb with their defaults."""
    from bayes_at_n.pipeline.config import compose

    defaults = keys(verb)
    groups = {key.partition(".")[0] for key in defaults if verb.settings == RUN}
    for group, choice in compose.GROUPS.items():
        if group in groups:
            yield _wrapped(f"{group}: {', '.join(compose.files(group))}; default {choice}")
    if defaults:
        meanings, lines = descriptions(verb.kinds[0]), list[str]()
        for key, value in defaults.items():
            lines += _columns(f"{key}={written(value)}", meanings.get(key, ""))
        yield (
            "settings and their defaults (trials=8 is short for sampling.trials=8):\n"
            + "\n".join(lines)
        )
    if RUN in verb.settings and verb is not VERBS["run"]:
        yield f"also the settings of `run`: {PROGRAM} run --help"


def written(value: Any) -> str:
    """Write a default as a command line takes it."""
    text = f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)
    return _WRITTEN.get(text, text)


def _columns(setting: str, meaning: str) -> list[str]:
    """Lay out a setting and its meaning side by side; below each other where it is long."""
    right = textwrap.wrap(meaning, 98 - _MEANING, break_on_hyphens=False)
    left = textwrap.wrap(f"  {setting}", 98, break_on_hyphens=False, subsequent_indent="    ")
    if right and len(left[-1]) < _MEANING - 1:
        left[-1] = f"{left[-1]:{_MEANING}}{right.pop(0)}"
    return left + [" " * _MEANING + line for line in right]


def descriptions(kind: Any) -> dict[str, str]:
    """Return the meaning of each key of a dataclass, by dotted name: the comment at its field.

    The comment is on the field's line or, where that would be too long, above it.

    >>> from bayes_at_n.pipeline.config.settings import RunConfig
    >>> descriptions(RunConfig)["model.tokenizer"]
    "hub id or folder; default: the model's"
    """
    from bayes_at_n.pipeline.config.checks import keys as keys_of

    texts = dict[str, str]()
    for owner in reversed([cls for cls in kind.__mro__ if is_dataclass(cls)]):
        texts |= _comments(owner)
    for name, hint in keys_of(kind).items():
        if is_dataclass(hint) and "." not in name:
            texts |= {f"{name}.{key}": text for key, text in descriptions(hint).items()}
    return texts


def _comments(kind: Any) -> dict[str, str]:
    """Return the comments at the fields that a class itself declares."""
    texts, above, name = dict[str, str](), list[str](), ""
    for line in inspect.getsource(kind).splitlines():
        if line.startswith("    # "):
            above.append(line[6:])
            continue
        if (field := re.match(r"    (\w+): ", line)) and field[1] in kind.__annotations__:
            name, above, texts[field[1]] = field[1], [], " ".join(above)
        if name and (comment := re.search(r"  # (.*)", line)):
            texts[name] = f"{texts[name]} {comment[1]}".strip()
        if not line.strip():  # methods follow
            name, above = "", []
    return texts


def keys(verb: Verb) -> dict[str, Any]:
    """Return the keys of a verb with their defaults.

    >>> keys(VERBS["verify"])["labels.file"], "model.id" in keys(VERBS["verify"])
    (None, False)
    """
    from bayes_at_n.pipeline.config.checks import keys as keys_of

    groups = tuple(f"{key}." for key in verb.keys.split()) if verb.keys is not None else ""
    excluded = ("folders.", "race.") if verb.keys else ("folders.", "race.", "cluster.")
    types, defaults = keys_of(verb.kinds[0]), verb.kinds[0]()
    own = [key for key in types if f"{key}.".startswith(groups) and not is_dataclass(types[key])]
    return {k: attrgetter(k)(defaults) for k in own if not f"{k}.".startswith(excluded)}


def complete() -> None:
    """Print completions for a shell and end the process."""
    import argcomplete
    from argcomplete.completers import FilesCompleter

    def value(prefix: str, action: Any, parsed_args: Any, **_: Any) -> Iterable[str]:
        files: Iterable[str] = FilesCompleter()(prefix)
        return files if action.option_strings else completions(parsed_args.verb, prefix)

    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb")
    for name, verb in VERBS.items():
        declare(verbs.add_parser(name), verb)
    argcomplete.autocomplete(parser, False, default_completer=value)  # type: ignore[arg-type]


def completions(name: str, prefix: str) -> list[str]:
    """Return the settings and run folders with a prefix that a verb accepts.

    >>> [*completions("run", "sampling=p"), *completions("run", "model=limo-v2,qwen3-30")]
    ['sampling=paper', 'model=limo-v2,qwen3-30b']
    """
    from bayes_at_n.pipeline.config import compose

    verb, (key, equals, text) = VERBS[name], prefix.partition("=")
    of_run, known = RUN in verb.settings, keys(verb)
    groups = [*compose.GROUPS, "rubric"] if of_run else ["rubric"]
    if equals:
        before, comma, _ = text.rpartition(",")
        names = compose.files(key) if key in groups else []
        if key in ("dataset", "model") and not of_run:  # names of existing runs
            level = "[!_]*/" if key == "dataset" else "[!_]*/[!_]*/"
            names = sorted({path.name for path in Path("runs").glob(level)})
        candidates = [f"{key}={before}{comma}{one}" for one in names]
    else:
        used = {one.partition(".")[0] for one in known} | {"model", "dataset"}
        candidates = [f"{group}=" for group in groups if verb.composes or group in used]
        candidates += [f"{one}=" for one in known if prefix or not of_run]  # `run` has 150
        candidates += _folders(prefix) if _takes_folders(verb) else []
    return [candidate for candidate in candidates if candidate.startswith(prefix)]


def _folders(prefix: str) -> Iterator[str]:
    """Yield run folders, and folders with runs at most two levels below."""
    parent = prefix[: prefix.rfind("/") + 1]
    for path in sorted(Path(parent or ".").expanduser().glob("[!.]*/")):
        if (path / "questions.parquet").is_file():
            yield f"{parent}{path.name}"
        elif any(next(path.glob(f"{level}/questions.parquet"), None) for level in ("*", "*/*")):
            yield f"{parent}{path.name}/"
