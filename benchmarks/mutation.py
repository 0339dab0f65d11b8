"""What the tests of a module notice: a seeded sample of small changes to it, each tried alone.

    python -m benchmarks.mutation [MODULE ...] [--seed 1] [--sample 60]

Exchanged are comparisons, operators, `and` and `or`, True and False; a number is one more, a
condition turned round, a call that is a statement left out, None returned. In a copy of the tree
the tests that mirror the module run until the first that fails, or for four times their time.
"""

import argparse
import ast
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayes_at_n.pipeline.base.program import ROOT

MIRRORS = {
    "verifiers/answers/grading.py": ["tests/verifiers/test_grading.py"],
    "pipeline/store/outcomes.py": ["tests/store/test_outcomes.py"],
    "scoring/ranking/ranks.py": ["tests/scoring/test_ranks.py"],
    "pipeline/base/journal.py": ["tests/base/test_journal.py"],
    "verifiers/judge/calibration.py": ["tests/verifiers/test_calibration.py"],
}
LIBRARIES = (
    "numpy scipy.stats pyarrow.parquet hypothesis hydra pandas psutil xdist matplotlib.figure"
)
OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def changes(tree: ast.AST) -> Iterator[tuple[ast.AST, str, object]]:
    """Every change to a module, as a node, the name of a field of it, and another value of that."""
    for node in ast.walk(tree):
        for name in ("ops", "op"):
            found = getattr(node, name, None)
            several = found if isinstance(found, list) else [found]
            for i, one in enumerate(several):
                if other := OTHER.get(type(one)):
                    new = [*several[:i], other(), *several[i + 1 :]]
                    yield node, name, new if isinstance(found, list) else new[0]
        value = getattr(node, "value", None)
        if isinstance(node, ast.Constant) and isinstance(value, int | float):
            yield node, "value", not value if isinstance(value, bool) else value + 1
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node, "test", ast.UnaryOp(ast.Not(), node.test)
        call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if call or (isinstance(node, ast.Return) and node.value):
            yield node, "value", ast.Constant(None)


def hidden(tree: ast.Module) -> set[ast.AST]:
    """Nodes in annotations, messages and definitions of types, which no test can notice."""
    found = list[ast.AST | None]()
    for node in ast.walk(tree):
        found += [getattr(node, name, None) for name in ("annotation", "returns")]
        if isinstance(node, ast.JoinedStr | ast.Raise):
            found.append(node)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            found.append(node.value)  # such as npt.NDArray[np.int8]
    return {part for node in found if node is not None for part in ast.walk(node)}


def mutants(source: str) -> list[tuple[str, str]]:
    """All changed sources of a module that differ from it, and where they do."""
    tree, made = ast.parse(source), []
    plain, skipped = ast.unparse(tree), hidden(tree)
    for node, name, new in list(changes(tree)):
        if node in skipped:
            continue
        old = getattr(node, name)
        setattr(node, name, new)
        changed = ast.unparse(ast.fix_missing_locations(tree))
        setattr(node, name, old)
        if changed != plain:
            line, said = getattr(node, "lineno", 0), type(new[0] if isinstance(new, list) else new)
            text = source.splitlines()[line - 1].strip()
            made.append((f"    line {line}, {said.__name__}: {text}", changed))
    return made


def passes(place: Path, tests: list[str], limit: float) -> bool:
    """Whether all tests pass, in a fork that finds no module of ours imported."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.chdir(place)
        for number in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        for name in [name for name in sys.modules if name.partition(".")[0] == "bayes_at_n"]:
            del sys.modules[name]
        sys.path[:] = [str(place), *(path for path in sys.path if path not in ("", str(ROOT)))]
        os.environ |= {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])))
    until = time.monotonic() + limit
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < until:
        time.sleep(0.02)
    if ended == (0, 0):
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return ended[0] == child and os.waitstatus_to_exitcode(ended[1]) == 0


def main() -> None:
    """Try each module, and print the share of changes that were noticed, and the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=[*MIRRORS])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=60)
    asked = parser.parse_args()
    for name in LIBRARIES.split():
        __import__(name)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "copy"
        left_out = shutil.ignore_patterns(".git", ".venv*", "runs", "demo", "docs", "*cache*")
        shutil.copytree(ROOT, place, symlinks=True, ignore=left_out)
        (place / "demo").symlink_to(ROOT / "demo")
        for module in asked.modules:
            source, began = (ROOT / module).read_text(), time.monotonic()
            tests = [*MIRRORS[module], f"bayes_at_n/{module}"]
            if not passes(place, tests, 600.0):
                sys.exit(f"{module}: its tests fail as it is")
            limit, survived = 4 * (time.monotonic() - began), list[str]()
            found = mutants(source)
            random.Random(asked.seed).shuffle(found)
            for where, changed in (sample := found[: asked.sample]):
                (place / module).write_text(changed)
                if passes(place, tests, limit):
                    survived.append(where)
            (place / module).write_text(source)
            share = 1 - len(survived) / len(sample)
            print(f"{module}: {share:.0%} of {len(sample)} noticed, of {len(found)} changes")
            print(*survived, sep="\n", flush=True)


if __name__ == "__main__":
    main()
