# Two commands do everything on a fresh machine with Python 3.11, pip, gcc and make:
#   make demo     install into .venv and show a league at work
#   make test     install into .venv and run every check
# Nothing is installed outside this folder. `make help` lists the rest.

PYTHON ?= $(shell command -v python3.11 || echo python3)
SEEDS ?= 500
LONG_SEEDS ?= 10000
FUZZ_SECONDS ?= 600
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Learning is an extra and heavy (torch): only the tests ask for it.
LEARN := $(VENV)/.ready-learn
# The system's pip installs into the environment, so that Python's ensurepip (a package of its own on Debian) is not needed.
PIP := $(PYTHON) -m pip --disable-pip-version-check

.PHONY: help demo test lint types layers unit chaos chaos-long bench bench-live fuzz validate lock format install clean
.DEFAULT_GOAL := help

help:
	@echo "make demo        start a real league on this machine that places, runs and explains work"
	@echo "make test        every check: lint, types, layers, unit tests, $(SEEDS) seeds of chaos"
	@echo "make bench       measure this machine; writes results/bench.json"
	@echo "make validate    published figures beside ours; writes docs/validation.md and docs/validation-rigid-gpu.md"
	@echo "make bench-live  measure a real league on this machine; writes results/bench-live.json"
	@echo "make fuzz        $(FUZZ_SECONDS) s of guided fuzzing of what arrives from the network"
	@echo "make chaos-long  $(LONG_SEEDS) seeds of chaos"
	@echo "make lint | types | layers | unit | chaos   the parts of 'make test'"
	@echo "make format      lay the code out"
	@echo "make lock        choose the versions in requirements.lock anew"
	@echo "make clean       remove all that was built or installed here"

install: $(READY)

# Exact versions of everything: setuptools first, because the package is then built with it and not with a newer one.
$(READY): pyproject.toml setup.py requirements.lock src/hanse/policy/kernel/kernels.c src/hanse/live/supervisor/supervisor.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "hanse needs Python 3.11 or later; say which with 'make PYTHON=/path/to/python3.11 ...'"; exit 1; }
	$(PYTHON) -m venv --clear --without-pip $(VENV)
	$(PIP) --python $(BIN)/python install --quiet -c requirements.lock setuptools
	$(PIP) --python $(BIN)/python install --quiet -c requirements.lock --no-build-isolation -e '.[dev]'
	@touch $@

# torch by itself first and by its exact version, so that nothing else chooses a build of it.
$(LEARN): $(READY)
	$(PIP) --python $(BIN)/python install --quiet -c requirements.lock torch==2.13.0
	$(PIP) --python $(BIN)/python install --quiet -c requirements.lock --no-build-isolation -e '.[dev,learn]'
	@touch $@

demo: install
	$(BIN)/hanse tour

test: lint types layers unit chaos
	@echo "all checks passed"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(LEARN)
	$(BIN)/mypy

layers: install
	$(BIN)/lint-imports

unit: $(LEARN)
	$(BIN)/pytest -n auto

chaos: install
	$(BIN)/hanse chaos --seeds $(SEEDS)

chaos-long: install
	$(BIN)/hanse chaos --seeds $(LONG_SEEDS)

bench: install
	@mkdir -p results
	$(BIN)/python bench/all.py --json results/bench.json

# Needs the public traces: ../shared/traces, or wherever HANSE_TRACES says.
validate: install
	$(BIN)/python -m hanse.sim.replay.validate --out docs/validation.md
	$(BIN)/python -m hanse.sim.rigid.validate

bench-live: install
	@mkdir -p results
	$(BIN)/python bench/live.py --json results/bench-live.json

fuzz: install
	$(BIN)/python tests/live/wire/fuzz_frames.py -max_total_time=$(FUZZ_SECONDS)

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The newest versions that pyproject.toml allows, as one environment that really was installed.
lock:
	rm -rf build/lock
	$(PYTHON) -m venv --without-pip build/lock
	$(PIP) --python build/lock/bin/python install --quiet 'setuptools>=77'
	$(PIP) --python build/lock/bin/python install --quiet torch==2.13.0
	$(PIP) --python build/lock/bin/python install --quiet --no-build-isolation '.[dev,learn]'
	{ echo "# Made by 'make lock' from pyproject.toml (base, dev and learn). Do not edit: change pyproject.toml and run it again."; \
	  $(PIP) --python build/lock/bin/python list --format freeze --exclude hanse --exclude pip | sed 's/+cpu$$//'; } > requirements.lock
	rm -rf build

clean:
	rm -rf $(VENV) build dist results src/*.egg-info src/hanse/policy/kernel/_kernels.so src/hanse/live/supervisor/_supervisor
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
