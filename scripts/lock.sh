#!/usr/bin/env bash
# Rebuild requirements/cpu.lock, docs.lock, extras.lock, gpu.lock and lm_eval.lock from their .in files and pyproject.toml.
# Usage: scripts/lock.sh   (needs `pip install uv`; set UV_FIND_LINKS if torch's CPU build lies in a folder)
# torch comes from whichever index has a CPU build, so its hash is not fixed: a file of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() {
    uv pip compile --universal --python-version 3.11 --no-emit-package bayes-at-n --generate-hashes \
        --custom-compile-command scripts/lock.sh --quiet "$@"
}

on_cpu() {
    compile "requirements/$1.in" --override requirements/overrides.txt --no-emit-package torch \
        --output-file "requirements/$1.lock"
}

on_cpu cpu
compile requirements/docs.in --constraints requirements/cpu.lock --output-file requirements/docs.lock
# uv keeps the versions that it finds in its output: GPU nodes grade with what was tested on CPUs.
cp requirements/cpu.lock requirements/extras.lock
on_cpu extras
cp requirements/cpu.lock requirements/lm_eval.lock
on_cpu lm_eval
cp requirements/cpu.lock requirements/gpu.lock
compile requirements/gpu.in --output-file requirements/gpu.lock
