"""Files that others may have written are read within limits."""

import subprocess
import sys
from pathlib import Path

import pytest

from bayes_at_n.pipeline.base import untrusted
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import ROOT

# In a process of its own: what another one has freed would do for it.
BOUNDED = """
import resource
from bayes_at_n.pipeline.base import untrusted
before = resource.getrlimit(resource.RLIMIT_AS)
def why(read):
    try:
        read()
    except (MemoryError, ValueError) as error:
        return str(error)
def much():
    with untrusted.memory_limit(1 << 20):
        bytearray(1 << 31)
assert why(much) is not None and resource.getrlimit(resource.RLIMIT_AS) == before
untrusted.HEADROOM = -(64 << 20)  # not a byte more than this process has
print(why(lambda: untrusted.json_value(b"[" + b"{}," * 3_000_000 + b"{}]")))
print(why(lambda: untrusted.json_value(b"[" * 200_000)))
"""


def test_memory_for_foreign_files_is_bounded() -> None:
    done = subprocess.run([sys.executable, "-c", BOUNDED], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    much, deep = done.stdout.splitlines()
    assert "take too much memory" in much and "too deep" in deep


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted, "MOST_LINE", 1 << 20)
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n{"a": "' + "x" * (1 << 20) + '"}\n{"a": 2}\n')
    with pytest.raises(UserError, match=r"x.jsonl, line 2: over 1 MiB"):
        list(untrusted.json_lines(path))
