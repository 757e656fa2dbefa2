# Two commands do everything on a fresh machine with Python 3.11, pip, gcc and make:
#   make demo     install into .venv and show a league at work
#   make test     install into .venv and run every check
# Nothing is installed outside this folder. `make help` lists the rest.

# Debian's own Python before one built by hand: it is compiled with profiles (an eighth to a third faster under our
# benchmarks than a plain build) and gets its security updates. Another: make PYTHON=/path/to/python3.11 ...
ifndef PYTHON
PYTHON := $(shell /usr/bin/python3.11 -c 'import pip, venv' 2> /dev/null && echo /usr/bin/python3.11 \
	|| command -v python3.11 || echo python3)
endif
SEEDS ?= 500
LONG_SEEDS ?= 10000
FUZZ_SECONDS ?= 600
MUTANT_SEEDS ?= 60
MINUTES ?= 20
SEED ?= 1
ONLY ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Learning is an extra and heavy (torch): only the tests ask for it.
LEARN := $(VENV)/.ready-learn
# The system's pip installs into the environment, so that Python's ensurepip (a package of its own on Debian) is not needed.
PIP := $(PYTHON) -m pip --disable-pip-version-check

# A Python with the peers to measure beside: make bench-live PEERS=/path/to/venv/bin/python
PEERS ?=
# Tests at a time: many of the live ones wait for leases and restarts, so twice as many as there are cores.
WORKERS ?= $(shell expr 2 \* $$(nproc))
# Peer simulators, in an environment of their own: they want other versions than we do.
SIMULATORS := .venv-simulators
# The generator of the documentation site, in an environment of its own, and the script that draws its diagrams.
DOCS := .venv-docs
MERMAID := 11.17.2
MERMAID_SHA512 := 57a2b70bc101744b0f1595d228c25eea9a50384371b87011afd1af1d7e21878ee501b84c443f6a7f8a042bb2e869143150b31af34feab798073bbdda0a578106

.PHONY: help docs reference demo test lint types layers unit chaos chaos-long bench bench-live bench-calls bench-doors bench-large bench-restart bench-sizes bench-instructions mutants soak schema fuzz validate lock format install clean
.DEFAULT_GOAL := help

help:
	@echo "make demo        start a real league on this machine that places, runs and explains work"
	@echo "make test        every check: lint, types, layers, unit tests, $(SEEDS) seeds of chaos"
	@echo "make bench       measure this machine; writes results/bench.json"
	@echo "make validate    published figures beside ours; writes docs/results/validation.md and docs/results/validation-rigid-gpu.md"
	@echo "make bench-live  measure a real league on this machine; writes results/bench-live.json"
	@echo "make bench-calls Python calls beside a process pool, and beside PEERS=python with ray, distributed, parsl"
	@echo "make bench-doors what a flood of one identity does to the others; writes results/bench-doors.json"
	@echo "make bench-large what one job of a million tasks does to the others; writes results/bench-large.json"
	@echo "make bench-restart a start after a power cut with 1 GB of journal; writes results/bench-restart.json"
	@echo "make bench-sizes replays of one trace at many sizes of league; writes results/bench-sizes.json"
	@echo "make bench-instructions  machine instructions per simulated event (needs valgrind)"
	@echo "make schema      thousands of odd requests against a real league's HTTP interface"
	@echo "make fuzz        $(FUZZ_SECONDS) s of guided fuzzing of what arrives from the network"
	@echo "make mutants     planted bugs, each of which some test must notice; ONLY=core/broker/failover/standby for some of them"
	@echo "make soak        a real league under clients and faults for $(MINUTES) minutes; SEED=2 for others; writes results/soak.json"
	@echo "make chaos-long  $(LONG_SEEDS) seeds of chaos"
	@echo "make docs        build the documentation site into site/; a bad link fails it"
	@echo "make reference   write the generated pages of docs/reference and docs/architecture anew"
	@echo "make lint | types | layers | unit | chaos   the parts of 'make test'"
	@echo "make format      lay the code out"
	@echo "make lock        choose the versions in requirements.lock anew"
	@echo "make clean       remove all that was built or installed here"

install: $(READY)

# Exact versions of everything: setuptools first, because the package is then built with it and not with a newer one.
$(READY): pyproject.toml setup.py requirements.lock src/hanse/policy/kernels/kernels.c $(wildcard src/hanse/live/supervisor/*.[ch] src/hanse/sim/replay/compiled/*.[ch])
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

# Tests that failed beside others run once more, alone and one at a time. A test that passes only then raced the
# machine: it is a bug of the test, and this output is where it is seen. A test that fails twice fails the target.
unit: $(LEARN)
	$(BIN)/pytest -rs -n $(WORKERS) --dist worksteal --durations 20 || { [ $$? -eq 1 ] && echo "these tests failed beside others; each runs once more, alone:" \
		&& $(BIN)/pytest --last-failed --last-failed-no-failures none --verbose; }

chaos: install
	$(BIN)/hanse chaos --seeds $(SEEDS)

chaos-long: install
	$(BIN)/hanse chaos --seeds $(LONG_SEEDS)

$(SIMULATORS)/.ready:
	$(PYTHON) -m venv --clear --without-pip $(SIMULATORS)
	$(PIP) --python $(SIMULATORS)/bin/python install --quiet accasim==1.1.3 simpy==4.1.2
	@touch $@

bench: $(LEARN) $(SIMULATORS)/.ready
	@mkdir -p results
	HANSE_PEERS=$(SIMULATORS) $(BIN)/python bench/all.py --json results/bench.json

# Python packages and one npm package at exact versions. This step needs package indexes; 'make docs' itself needs no network.
$(DOCS)/.ready: tools/site/requirements.lock
	@command -v npm > /dev/null || { echo "the diagrams of the site need npm, which fetches mermaid $(MERMAID)"; exit 1; }
	$(PYTHON) -m venv --clear --without-pip $(DOCS)
	$(PIP) --python $(DOCS)/bin/python install --quiet --no-deps -r tools/site/requirements.lock
	cd $(DOCS) && npm pack --silent mermaid@$(MERMAID) && echo "$(MERMAID_SHA512)  mermaid-$(MERMAID).tgz" | sha512sum --check --quiet \
		&& tar -xzf mermaid-$(MERMAID).tgz package/dist/mermaid.min.js
	@touch $@

docs: $(DOCS)/.ready
	$(PYTHON) -m tools.site --gather build/docs
	@mkdir -p build/docs/vendor
	cp $(DOCS)/package/dist/mermaid.min.js build/docs/vendor
	$(DOCS)/bin/zensical build --strict --clean
	$(PYTHON) -m tools.site --check site

reference: install
	$(BIN)/python -m tools.reference

# Needs the public traces: ../shared/traces, or wherever HANSE_TRACES says.
validate: install
	$(BIN)/python -m hanse.sim.replay.validate --out docs/results/validation.md
	$(BIN)/python -m hanse.sim.baselines.rigid.validate

bench-live: install
	@mkdir -p results
	$(BIN)/python bench/live.py --json results/bench-live.json $(if $(PEERS),--peers $(PEERS))

bench-calls: install
	@mkdir -p results
	$(BIN)/python bench/calls.py --json results/bench-calls.json $(if $(PEERS),--peers $(PEERS))

bench-doors: install
	@mkdir -p results
	$(BIN)/python bench/doors.py --json results/bench-doors.json

bench-large: install
	@mkdir -p results
	$(BIN)/python bench/large_job.py --json results/bench-large.json

bench-restart: install
	@mkdir -p results
	$(BIN)/python bench/restart.py --json results/bench-restart.json

bench-sizes: install
	$(BIN)/python bench/sizes.py --json results/bench-sizes.json

bench-instructions: install
	$(BIN)/python bench/instructions.py --json results/bench-instructions.json

schema: install
	HANSE_SCHEMA_EXAMPLES=100 HANSE_SCHEMA_PHASES=examples,coverage,fuzzing $(BIN)/pytest tests/live/http/test_clients_live.py

fuzz: install
	$(BIN)/python tests/live/rpc/fuzz_frames.py -max_total_time=$(FUZZ_SECONDS)

# Verdicts are kept in build/mutants as they come, so an interrupted run goes on where it stopped.
mutants: $(LEARN)
	$(BIN)/python -m tools.mutants --only "$(ONLY)" --seeds $(MUTANT_SEEDS)

soak: install
	$(BIN)/python -m tools.soak --minutes $(MINUTES) --seed $(SEED) --json results/soak.json

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
	rm -rf $(VENV) $(SIMULATORS) $(DOCS) site .cache build dist results src/*.egg-info src/hanse/policy/kernels/_kernels.so src/hanse/live/supervisor/_supervisor src/hanse/sim/replay/compiled/_plain.so src/hanse/sim/worlds/compiled/_world.so
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
