#!/usr/bin/env bash
# Rebuild requirements/cpu.lock from requirements/cpu.in and pyproject.toml.
# Usage: scripts/lock.sh   (needs `pip install uv`; set UV_FIND_LINKS if torch's CPU build lies in a folder)
# torch comes from whichever index has a CPU build, so its hash is not fixed: a file of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
uv pip compile requirements/cpu.in --override requirements/overrides.txt --universal \
    --python-version 3.11 --no-emit-package bayes-at-n --no-emit-package torch --generate-hashes \
    --custom-compile-command scripts/lock.sh --quiet --output-file requirements/cpu.lock
