# Every target does its own set-up in .venv, without root. Override with PYTHON=... where python3.11 has another name.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt
MAIN := $(VENV)/.installed-main
DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help demo up test unit check fmt proto bench clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

demo: $(MAIN) ## Install what is needed, start everything, ingest a folder of documents, answer questions
	@GRPC_VERBOSITY=NONE GRPC_ENABLE_FORK_SUPPORT=0 $(BIN)/python -m services.launch.demo

up: $(MAIN) ## Run all four services on one port, 127.0.0.1:7700
	@$(BIN)/pergamon up

test: $(DEV) ## Run every test; starts and stops every server that it needs
	$(BIN)/pergamon models pull --starter
	$(BIN)/python -m pytest tests -n 2 --dist loadscope -q --durations=10

unit: $(DEV) ## Run the unit tests only, in less than a minute
	$(BIN)/python -m pytest tests/unit -n 2 --dist loadscope -q

check: $(DEV) ## Lint, types, layers, protos, generated code and docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/buf lint
	scripts/buf_breaking.sh
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python scripts/generate_protos.py --check
	$(BIN)/python scripts/generate_api_docs.py --check
	$(BIN)/python scripts/generate_operations_docs.py --check

fmt: $(DEV) ## Format the code
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format -q .

proto: $(DEV) ## Generate code and docs from protos/, settings and metrics
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python scripts/generate_protos.py
	$(BIN)/python scripts/generate_api_docs.py
	$(BIN)/python scripts/generate_operations_docs.py

bench: $(DEV) ## Measure speed and quality; JSON into bench/out (NAMES="embed_engine lanes": only these)
	$(BIN)/python -m bench $(NAMES)

clean: ## Remove the virtual environment
	rm -rf $(VENV)

$(MAIN): pyproject.toml clients/python/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the server and its dependencies into $(VENV) (about 1 GB, once) ..."
	@$(PIP) -qq --editable clients/python --editable .
	@touch $@

$(DEV): $(MAIN)
	@echo "Installing the extras and tools for development into $(VENV) (PyTorch and Ray among them, once) ..."
	@$(PIP) -qq --editable clients/python --editable ".[dev]"
	@touch $@
