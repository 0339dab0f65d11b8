"""Hooks of MkDocs and an extension of Griffe, by which `make docs` adds pages to those in docs/.

README, CHANGELOG and CONTRIBUTING become pages; a page of all settings is generated from the
dataclasses' comments, and the Python reference from the packages. Links out of docs/ become text.
"""

import logging
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.cli.help import descriptions, keys, written
from bayes_at_n.pipeline.cli.verbs import GROUPS, VERBS
from bayes_at_n.pipeline.display.table import to_markdown
from bayes_at_n.pipeline.prepare import catalogue

ROOT = Path(__file__).parent.parent
_DOCTEST = re.compile(r"(?m)^>>> .*(?:\n.+)*")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_TOP = {"index.md": "README.md", "changes.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
_PYTHON = {
    "python": ["bayes_at_n.pipeline.api.verbs"],
    "scoring": ["bayes_at_n.scoring"],
    "verifiers": ["bayes_at_n.verifiers", "bayes_at_n.prompts"],
}


class Docstrings(griffe.Extension):
    """Turn doctests and literal blocks of docstrings, which are reStructuredText, into Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the doctests of one object."""
        if obj.docstring:
            text = _DOCTEST.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
            obj.docstring.value = re.sub(r"(?m)::$", ":", text)


def on_startup(**_: Any) -> None:
    """Print warnings only. The option --quiet would also hide them from `strict`."""
    for handler in logging.getLogger("mkdocs").handlers:
        handler.setLevel(logging.WARNING)


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    pages = {name: (ROOT / of).read_text(encoding="utf-8") for name, of in _TOP.items()}
    pages["reference/settings.md"] = _settings()
    tables = "\n".join(to_markdown(table) for table in catalogue.tables())
    pages["reference/catalogue.md"] = (
        f"# Models and datasets\n\nAs `catalogue` lists them.\n\n{tables}"
    )
    for name, packages in _PYTHON.items():
        pages[f"reference/{name}.md"] = f"# {name.capitalize()}\n\n" + "\n".join(
            f"::: {module}\n" for package in packages for module in _modules(package)
        )
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Point links of the README into the site; turn links to outside docs/ into text."""
    top = page.file.src_uri in _TOP

    def link(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        path, anchor = (target + "#").split("#")[:2]
        if "://" in target or not path:
            return match[0]
        path = path.removeprefix("docs/") if top else path
        if files.get_file_from_path(path) is None:
            return f"`{text}`" if "`" not in text else text
        return f"{image}[{text}]({path}{'#' * bool(anchor)}{anchor})"

    return _LINK.sub(link, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Drop roles of Sphinx from docstrings and keep their code."""
    return re.sub(r":(func|class|attr|mod|data):(?=<code>)", "", html)


def _settings() -> str:
    """Tabulate the verbs and the settings of each that no verb before it has."""
    lines = ["# Verbs and settings", "", "Generated from the program, as `VERB --help`."]
    seen = set[str]()
    for name in (name for names in GROUPS.values() for name in names.split()):
        verb, own = VERBS[name], keys(VERBS[name])
        lines += ["", f"## {name}", "", f"{verb.summary[0].upper()}{verb.summary[1:]}.", ""]
        lines += [f"    {PROGRAM} {line}" for line in verb.examples.splitlines()]
        rows = [key for key in own if key not in seen] if verb.keys != "" else []
        if rows:
            lines += ["", "| setting | default | meaning |", "| --- | --- | --- |"]
        meanings = descriptions(verb.kinds[0])
        for key in rows:
            default = f"`{written(own[key])}`" if written(own[key]) else ""
            cells = (f"`{key}`", default, meanings[key])
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        seen |= {*rows}
    return "\n".join(lines)


def _modules(package: str) -> list[str]:
    """Return the module, or the public modules of a package."""
    folder = ROOT.joinpath(*package.split(".")[1:])
    if not folder.is_dir():
        return [package]
    paths = sorted(path for path in folder.rglob("*.py") if not path.name.startswith("_"))
    return [".".join([package, *path.relative_to(folder).with_suffix("").parts]) for path in paths]
