"""The layers: imports run down only, in no circle. The pages: what a link names is there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parent.parent


def test_no_import_runs_up(capsys) -> None:  # type: ignore[no-untyped-def]
    """The contracts are in pyproject.toml, [tool.importlinter]."""
    status = lint_imports(cache_dir=None, no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_an_import_that_runs_up_is_noticed(tmp_path: Path) -> None:
    """Through the links of `bayes_at_n` and in a module of the lowest layer."""
    ignored = shutil.ignore_patterns("__pycache__", "*.json*", "*.js", "*.css", "*.yaml")
    for name in ("bayes_at_n", "benchmarks", "pipeline", "prompts", "scoring", "verifiers"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "pipeline/base/errors.py").open("a") as planted:
        planted.write("\n\ndef late() -> None:\n    from bayes_at_n.pipeline.cli import main\n")
    line = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "base.errors -> bayes_at_n.pipeline.cli" in done.stdout


def _anchors(page: Path) -> set[str]:
    """GitHub's anchors of the headings: lower case, hyphens for spaces, no punctuation."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    heads = re.findall(r"^#+ +(.*?) *$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_links_of_the_pages_lead_somewhere() -> None:
    """Relative links of every Markdown page in git, with their anchors."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    broken = []
    for name in listed.stdout.split() or [str(p) for p in ROOT.glob("docs/*.md")]:
        page = ROOT / name
        text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.S | re.M)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            place, _, anchor = unquote(link).partition("#")
            target = (page.parent / place) if place else page
            if re.match(r"[a-z]+:", link):
                continue
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append(f"{name}: {link}")
    assert not broken
