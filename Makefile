# Needs GNU make, a POSIX shell, Python >= 3.11 and the package index.  `make help` lists the targets.

PYTHON ?= python3
# One environment per PYTHON: .venv for python3, .venv-python3.13 for python3.13, ...
VENV ?= $(if $(filter-out python3,$(PYTHON)),.venv-$(notdir $(PYTHON)),.venv)
# Further arguments for pytest or the benchmarks: make test ARGS="tests/analysis/test_graph.py -x"
ARGS ?=
# PEERS=1: also install the larger libraries that the benchmarks compare with (several GB with torch).
PEERS ?=

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --quiet --disable-pip-version-check
DEV := $(VENV)/.installed-dev
EXTRAS := dev,bench
BENCH := $(VENV)/.installed-bench
ifneq ($(PEERS),)
EXTRAS := dev,bench,peers
BENCH := $(VENV)/.installed-peers
endif

LIBRARIES := $(VENV)/.installed-libraries
DOCS := $(VENV)/.installed-docs

.PHONY: help demo test lint type crash libraries fuzz docs bench clean

help: ## this list
	@echo 'Targets:'
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s  %s\n", $$1, $$2 }' Makefile
	@echo 'PYTHON=python3.13 uses that Python, in an environment of its own; ARGS="..." is passed on.'

demo: $(DEV) ## train the handwritten digits (specs/digits.yaml), as a fresh run in runs/
	$(VENV)/bin/jobrun train specs/digits.yaml --fresh --runs-dir runs

test: lint type ## lint, types and the test suite
	$(PY) -m pytest -n 4 $(ARGS)

lint: $(DEV) ## ruff: rules and formatting
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

type: $(DEV) ## mypy --strict
	$(PY) -m mypy

crash: $(DEV) ## the long hunt: kill runs at many places, resume, compare every byte
	JOBRUN_LONG=1 $(PY) -m pytest tests/crash tests/acceptance \
	  tests/checkpoint/test_huge.py tests/data/test_memory.py tests/cli/test_sweep.py \
	  tests/cli/test_damage.py tests/cli/test_hostile.py tests/session tests/specs tests/jobspec/test_scale.py \
	  tests/bench $(ARGS)

libraries: $(LIBRARIES) ## install PyTorch, JAX, scikit-learn, … (several GB) and run their tests, long
	JOBRUN_LONG=1 $(PY) -m pytest tests/values/adapters tests/libraries tests/data \
	  tests/session/pipe/test_source.py tests/cli/test_init.py tests/test_docs.py $(ARGS)

fuzz: $(DEV) ## 20,000 mutated specs: each is a job, or errors with their places
	$(PY) -m tests.jobspec.fuzz $(ARGS)

docs: $(DOCS) ## build the documentation as a site, build/site
	$(PY) -m pytest -n 0 tests/test_site.py
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build -f .docs/mkdocs.yml
	@echo 'open build/site/index.html, or: $(PY) -m http.server --directory build/site'

bench: $(BENCH) ## measure against plain loops, raw files and other libraries; PEERS=1: all of them
	$(PY) -m tests.bench $(ARGS)

clean: ## remove environments and caches; runs/ is kept
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find jobrun specs tests -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment that is not whole (an interrupted attempt, a Python since removed) is made anew.
$(DEV): pyproject.toml
	@$(PYTHON) -c '' || { \
	  echo "make: cannot run $(PYTHON); name a Python >= 3.11: make PYTHON=/path/to/python3" >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: jobrun needs Python >= 3.11, and $(PYTHON) is" \
	    "$$($(PYTHON) --version 2>&1); try make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "make: $(PYTHON) cannot make environments (no venv or ensurepip);" \
	    "on Debian and Ubuntu install the package python3-venv" >&2; exit 1; }
	@$(PIP) --version >/dev/null 2>&1 || { \
	  echo "making $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "installing jobrun and its tools into $(VENV)"
	@$(PIP) install --editable '.[dev]'
	@touch $@

$(BENCH): $(DEV)
	@$(PIP) install --editable '.[$(EXTRAS)]'
	@touch $@

$(LIBRARIES): $(DEV)
	@$(PIP) install --editable '.[dev,libraries]'
	@touch $@

$(DOCS): $(DEV)
	@$(PIP) install --editable '.[dev,docs]'
	@touch $@
