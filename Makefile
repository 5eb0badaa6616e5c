# Everything runs in .venv, which the first target that needs it creates. PYTHON names the interpreter to create it with.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEV := $(VENV)/.stamp-dev
BENCH := $(VENV)/.stamp-bench
# Two test processes share the machine's cores; torch's own threads would only fight over them.
ONE_THREAD := OMP_NUM_THREADS=1
# Hundreds of the tests start processes: compiling whynan in each of them again is a sixth of all their work.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test lint format bench quality

help:
	@echo "make demo      train the example and print what whynan says of it"
	@echo "make test      the tests, with branch coverage"
	@echo "make lint      style, types, architecture"
	@echo "make format    rewrite the source in the project's style"
	@echo "make quality   what the tests run a share of, in full: recall, false alarms (long)"
	@echo "make bench     what tracing costs, beside its peers"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "whynan needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(DEV): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[torch,dev]'
	@touch $@

$(BENCH): $(DEV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[torch,dev,bench]'
	@touch $@

demo: $(DEV)
	$(BIN)/python examples/gem_pooling/train.py

test: $(DEV)
	$(ONE_THREAD) $(BIN)/python -m pytest -m "not full" -n 2 --dist worksteal --hypothesis-profile=unshrunk --cov

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
