#!/usr/bin/env bash
# Rebuild requirements/cpu.lock from requirements/cpu.in and pyproject.toml.
# Usage: scripts/lock.sh   (needs `pip install uv`; set UV_FIND_LINKS if torch's CPU build lies in a folder)
set -euo pipefail
cd "$(dirname "$0")/.."
uv pip compile requirements/cpu.in --override requirements/overrides.txt --universal \
    --python-version 3.11 --no-emit-package bayes-at-n --generate-hashes \
    --custom-compile-command scripts/lock.sh --quiet --output-file requirements/cpu.lock
# torch comes from whichever index has a CPU build, so its hash is not fixed: a file of its own.
python3 - <<'PY'
import re
text = open("requirements/cpu.lock").read()
parts = re.split(r"(?m)^(?=\S)", text)
head = [p for p in parts if not re.match(r"torch==", p)]
open("requirements/cpu.lock", "w").write("".join(head))
PY
