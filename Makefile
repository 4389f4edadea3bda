# `make` alone explains itself. Everything runs in .venv, which is made on first use.
PYTHON ?= $(or $(shell command -v python3.11),$(shell command -v python3),python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DEV    := $(VENV)/.ready-dev
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check

SCENARIO ?= scenarios/chat-sweep.yaml
URL      ?=
RUN      ?=
ARGS     ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo run ui prefix-cache interference ab table report calibrate test lint bench engines test-engines clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

setup: $(DEV) ## make .venv and install everything into it, for tests too
$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements.txt setuptools==80.9.0
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@
$(DEV): $(READY) requirements-dev.txt
	$(PIP) -r requirements-dev.txt
	@touch $@

demo: $(READY) ## a simulated engine under chat traffic at 1 to 32 users, and its table
	$(BIN)/locust -f locustfiles/chat.py --headless --only-summary --scenario scenarios/demo.yaml $(ARGS)

run: $(READY) ## make run SCENARIO=scenarios/chat-sweep.yaml URL=http://host:8000: the load, then the table
	$(BIN)/locust -f locustfiles/mixed.py --headless --only-summary --scenario $(SCENARIO) $(if $(URL),--host $(URL)) $(ARGS)

prefix-cache: $(READY) ## URL=http://host:8000: what does its prefix cache buy? (without URL: a simulated engine)
	$(BIN)/locust -f locustfiles/mixed.py --headless --only-summary --scenario scenarios/prefix-cache.yaml $(if $(URL),--host $(URL)) $(ARGS)

interference: $(READY) ## URL=http://host:8000: what do traffic classes do to each other? (without URL: a simulated engine)
	$(BIN)/locust -f locustfiles/mixed.py --headless --only-summary --scenario scenarios/interference.yaml $(if $(URL),--host $(URL)) $(ARGS)

ab: $(READY) ## make ab A=http://one:8000 B=http://two:8000 SCENARIO=...: two servers in turns, A B B A: better, worse, cannot tell
	@$(if $(and $(A),$(B)),true,echo "make ab: A=URL and B=URL are wanted, the base and the candidate" >&2; exit 2)
	$(BIN)/python -m tokenswarm.alternation --a $(A) --b $(B) --scenario $(SCENARIO) $(ARGS)

ui: $(READY) ## Locust's page on http://127.0.0.1:8089; URL= and SCENARIO= are optional
	$(BIN)/locust -f locustfiles/mixed.py --web-host 127.0.0.1 $(if $(filter command line environment,$(origin SCENARIO)),--scenario $(SCENARIO)) $(if $(URL),--host $(URL)) $(ARGS)

table: $(READY) ## RUN=results/…: the table of a finished run (default: the newest); ARGS=--by-class
	$(BIN)/python -m analysis table $(RUN) $(ARGS)

report: $(READY) ## RUN=results/…: everything about a run on one page that opens anywhere (ARGS=--markdown: as text too)
	$(BIN)/python -m analysis report $(RUN) $(ARGS)

calibrate: $(READY) ## SCENARIO=...: what this machine measures truthfully at that load; runs then say so (ARGS="--processes 2")
	$(BIN)/python -m benchmarks.calibrate $(SCENARIO) $(ARGS)

test: $(DEV) ## all tests that need no engine
	$(BIN)/python -m pytest -m "not engine" $(ARGS)

lint: $(DEV) ## style, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(DEV) ## how fast and how truthful the load generator is on this machine
	$(BIN)/python -m benchmarks all $(ARGS)

engines: $(DEV) ## install the real engines that test-engines uses, into .engines
	$(BIN)/python -m tests.engines.install $(ARGS)

test-engines: $(DEV) ## chats, agents and captions against real llama.cpp and vLLM on the CPU
	$(BIN)/python -m pytest -m engine -rs $(ARGS)

clean: ## remove .venv and caches; results stay
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache benchmarks/build
