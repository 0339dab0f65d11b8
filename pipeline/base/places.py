"""Where the project's own files are: configurations, the demo, the template of batch scripts.

In a checkout they stand beside the packages. A wheel carries them inside `pipeline`, with the same
paths below `ROOT` (tool.hatch in pyproject.toml); of the demo's models those that `make demo` runs.
"""

from pathlib import Path

IMPORTED_FROM = Path(__file__).absolute().parents[3]  # of sys.path; `bayes_at_n/pipeline` is a link
PACKAGES = Path(__file__).resolve().parents[2]  # where `pipeline` and its neighbours lie
_INSTALLED = PACKAGES / "pipeline" / "_files"
ROOT = _INSTALLED if _INSTALLED.is_dir() else PACKAGES
