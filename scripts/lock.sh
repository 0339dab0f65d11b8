#!/usr/bin/env bash
# Rebuild requirements/cpu.lock and gpu.lock from cpu.in, gpu.in and pyproject.toml.
# Usage: scripts/lock.sh   (needs `pip install uv`; set UV_FIND_LINKS if torch's CPU build lies in a folder)
# torch comes from whichever index has a CPU build, so its hash is not fixed: a file of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() {
    uv pip compile --universal --python-version 3.11 --no-emit-package bayes-at-n --generate-hashes \
        --custom-compile-command scripts/lock.sh --quiet "$@"
}

compile requirements/cpu.in --override requirements/overrides.txt --no-emit-package torch \
    --output-file requirements/cpu.lock
# uv keeps the versions that it finds in its output: GPU nodes grade with what was tested on CPUs.
cp requirements/cpu.lock requirements/gpu.lock
compile requirements/gpu.in --output-file requirements/gpu.lock
