# Every target sets up what it needs; a second run starts at once. ARGS goes to the command behind the target,
# for example: make demo ARGS=--yes, or: make test ARGS="tests/unit -x -n 0".
SHELL := /bin/sh
VENV ?= .venv
ARGS ?=
.DEFAULT_GOAL := help
.NOTPARALLEL:

DEMO := $(VENV)/.demo-ready
DEV := $(VENV)/.dev-ready
CHECKS := .cache/checks/.ready

.PHONY: help demo demo-llm test fuzz lint types layers bench chaos deploy-checks lock clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(DEMO)  ## run the weekly report end to end; ARGS=--yes decides the approval by itself
	@$(VENV)/bin/agiwo demo $(ARGS)

demo-llm: $(DEMO)  ## the same with a small real language model (needs node 20 or later)
	@scripts/local_llm.sh $(VENV)/bin/python -- $(VENV)/bin/agiwo demo $(ARGS)

test: $(DEV)  ## run the tests
	@$(VENV)/bin/python -m pytest -n auto $(ARGS)

fuzz: $(DEV)  ## the OpenAPI document against a real service, longer than the tests do it; FUZZ_EXAMPLES=200 FUZZ_SEED=7
	@FUZZ_EXAMPLES=$${FUZZ_EXAMPLES:-100} FUZZ_SEED=$${FUZZ_SEED:-$$(date +%s)} $(VENV)/bin/python -m pytest -s -n 0 --timeout 3600 tests/api/test_api_fuzz.py $(ARGS)

lint: $(DEV)  ## style and common mistakes
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check --quiet .

types: $(DEV)  ## strict type check of the package
	@$(VENV)/bin/mypy

layers: $(DEV)  ## who may import whom
	@PYTHONPATH=app $(VENV)/bin/lint-imports

bench: $(DEV)  ## the benchmarks; they print numbers and assert ratios only
	@$(VENV)/bin/python -m pytest -s tests/benchmarks $(ARGS)

chaos: $(DEV)  ## kill the service at random and named moments, then check that nothing is lost
	@$(VENV)/bin/python -m pytest -s tests/chaos $(ARGS)

deploy-checks: $(CHECKS)  ## Dockerfile, compose file and YAML, checked offline
	@scripts/deploy_checks.sh .cache/checks/bin

lock: $(DEV)  ## resolve requirements/*.txt anew (needs uv)
	@scripts/lock.sh $(ARGS)

clean:  ## remove what the targets made in this checkout, the demo's database too
	rm -rf $(VENV) .cache .agiwo dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(DEMO): requirements/demo.txt pyproject.toml scripts/setup.sh
	@scripts/setup.sh $(VENV) demo
	@touch $@

$(DEV): requirements/dev.txt pyproject.toml scripts/setup.sh
	@scripts/setup.sh $(VENV) dev
	@touch $@ $(DEMO)

$(CHECKS): requirements/checks.txt scripts/setup.sh
	@scripts/setup.sh .cache/checks checks
	@touch $@
