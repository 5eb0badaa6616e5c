# Everything runs in .venv, which the first target that needs it creates. PYTHON names the interpreter to create it with.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.stamp-demo
DEV := $(VENV)/.stamp-dev
BENCH := $(VENV)/.stamp-bench
# Two test processes share the machine's cores; torch's own threads would only fight over them.
ONE_THREAD := OMP_NUM_THREADS=1
PYTEST = $(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal
# The properties are in both runs: in the second with all of their examples.
SHORT := smoke or not (process or proof or quality or breadth or full)
REST := (process or proof or quality or breadth or hypothesis) and not (smoke or full)
# Hundreds of the tests start processes: compiling whynan in each of them again is a sixth of all their work.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-rest coverage lint format bench quality

help:
	@echo "make demo      an example under whynan run: what it says, and a fix that is proved"
	@echo "make test      the tests of what each module does, in some minutes"
	@echo "make test-rest what make test leaves out"
	@echo "make coverage  both, and the branches that they take: at least 90 in 100"
	@echo "make lint      style, types, architecture"
	@echo "make format    rewrite the source in the project's style"
	@echo "make quality   what the tests run a share of, in full: recall, false alarms (long)"
	@echo "make bench     what tracing costs, beside its peers"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "whynan needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@

# What the demo needs is part of it.
$(DEV): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(DEMO) $@

$(BENCH): $(DEV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	@touch $@

# The exit status is 1 where an error was found.
demo: $(DEMO)
	@$(BIN)/whynan run examples/gem_pooling/train.py || test $$? -eq 1

# With COV=1 the two measure coverage together: the second adds its own to what the first left, and judges the sum.
test: $(DEV)
	$(PYTEST) -m "$(SHORT)" --hypothesis-profile=short $(if $(COV),--cov --cov-report= --cov-fail-under=0)

test-rest: $(DEV)
	$(PYTEST) -m "$(REST)" --hypothesis-profile=unshrunk $(if $(COV),--cov --cov-append)

# What measures it takes half as long again as the tests do.
coverage:
	$(MAKE) test COV=1
	$(MAKE) test-rest COV=1

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

quality: $(DEV)
	$(ONE_THREAD) $(BIN)/python -m pytest -m "full or hypothesis" --hypothesis-profile=drawn -n 2 -rA

bench: $(BENCH)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.ranks
