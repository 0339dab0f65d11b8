# Everything on a fresh machine: `make demo` or `make test`. Both set up .venv on first use.
PYTHON ?= python3
BIN = .venv/bin
READY = .venv/.ready
EXTRAS = .venv-extras
LM_EVAL = .venv-lm-eval
PIP = $(@D)/bin/python -m pip --disable-pip-version-check install -qq --progress-bar off

# Two processes of one thread each: tests/conftest.py says which files stay together.
# Compiled tests are kept, also where the environment says to keep none.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=10

.PHONY: demo test soak extras lm-eval check docs env clean
.DELETE_ON_ERROR:

demo: $(READY)  ## the main job on four embedded models, 2,400 attempts each; then all side by side
	$(BIN)/python -m pipeline run model.checkpoint=step-2400,step-3500,step-3600,step-3900
	$(BIN)/python -m pipeline compare dataset=demo
	$(BIN)/python -m pipeline report dataset=demo

test: check  ## lint, format, types, doctests, tests: at most six minutes on two cores
	$(PYTEST)

soak: $(READY)  ## the long versions: every kill, every case, the whole cluster scenario
	$(PYTEST) -m soak

extras: $(EXTRAS)/eee/.ready  ## tests with inspect_ai, Ray, W&B, MLflow, Trackio, in an environment of their own
	PATH="$(CURDIR)/$(EXTRAS)/eee/bin:$$PATH" $(EXTRAS)/bin/python -m pytest -m extras

lm-eval: $(LM_EVAL)/.ready  ## an environment with lm-evaluation-harness, for benchmarks

check: $(READY)  ## lint, format, types, and lines by room against their ceilings
	@$(BIN)/python scripts/lines.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/.docs  ## the documentation as a site, build/docs/index.html: half a minute
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "build/docs/index.html; with search: python -m http.server -d build/docs"

env: $(READY)  ## only the environment

$(READY): requirements/cpu.lock
$(EXTRAS)/.ready: requirements/extras.lock
$(LM_EVAL)/.ready: requirements/lm_eval.lock

# torch first and by itself: from an index with CPU builds if pip knows one
# (PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu), else the ordinary, larger build.
$(READY) $(EXTRAS)/.ready $(LM_EVAL)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if (3, 11) <= v < (3, 14) else \
	    f"Python {v[0]}.{v[1]} found, 3.11 to 3.13 needed: make PYTHON=python3.12 ...")'
	@echo "making the environment in $(@D): two minutes and more"
	@$(PYTHON) -m venv $(@D)
	@$(PIP) torch==2.13.0
	@$(PIP) --no-deps --require-hashes -r $(filter %.lock,$^)
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.docs: requirements/docs.lock $(READY)
	@$(PIP) --no-deps --require-hashes -r $<
	@touch $@

# Every Eval Ever's validator needs Python 3.12 and another numpy; its test is skipped without.
$(EXTRAS)/eee/.ready: $(EXTRAS)/.ready
	-@python3.12 -m venv $(@D) && $(PIP) every_eval_ever==0.3.0 && touch $@

clean:  ## remove the environment and caches, never runs/
	rm -rf .venv $(EXTRAS) $(LM_EVAL) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
