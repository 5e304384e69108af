# Every target works from a fresh clone with nothing but a Python of 3.11 or newer: `.ci/venv` makes what it needs.
#   PYTHON=/path/to/python3   another interpreter than the newest on PATH     VENV=.venv   another environment
#   PYTEST_ARGS="-k kmsg -x"  more arguments for `make test`                 SWEEP_ARGS="--sample 20"  for `make sweep`

PYTHON ?=
VENV ?= .venv
PYTEST_ARGS ?=
SWEEP_ARGS ?=
export PYTHON VENV

# Tests wait more than they compute; those of the cluster share one, so they go to one worker.
WORKERS := --numprocesses=auto --maxprocesses=4 --dist=loadgroup

EXPERIMENTS := device/xid-fatal-cordons-node device/xid-application-error-keeps-node

# The installed programs come first on PATH, also for what they start.
IN_VENV := PATH="$$PWD/$(VENV)/bin:$$PATH"
# Types and layers are judged where the wheel is: from here, the checkout would stand before it.
IN_SITE := cd "$(VENV)" && PATH="$$PWD/bin:$$PATH"

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-torch smoke check bench sweep cluster-build cluster-up cluster-status cluster-down test-cluster clean

help:           ## this list
	@sed -n 's/^\([a-z-]*\): *## /  make \1@/p' Makefile | tr '@' '\t' | expand -t 24

demo:           ## the two first experiments on the embedded GPU platform; exits with their verdict
	@.ci/venv base
	@$(IN_VENV) chaos-gpu lab run -- chaos-gpu run $(EXPERIMENTS)

test:           ## every test, on the installed wheel; those on a real cluster where one can run and is built
	@.ci/venv dev
	@$(IN_VENV) pytest $(WORKERS) $(PYTEST_ARGS)

test-torch:     ## real trainers, killed in the middle of a save; makes .venv-torch (some gigabytes, no GPU needed)
	@VENV=$(VENV)-torch .ci/venv torch
	@PATH="$$PWD/$(VENV)-torch/bin:$$PATH" pytest -m torch $(WORKERS) tests/trainers tests/criteria/checkpoint $(PYTEST_ARGS)

smoke:          ## the short part of the tests, for a second Python
	@.ci/venv dev
	@$(IN_VENV) pytest -m smoke $(PYTEST_ARGS)

check:          ## format, lint, types (strict) and layers
	@.ci/venv dev
	@$(MAKE) --no-print-directory --keep-going format lint types layers

.PHONY: format lint types layers
format:
	$(IN_VENV) ruff format --check .
lint:
	$(IN_VENV) ruff check .
types:
	$(IN_SITE) mypy --config-file "$(CURDIR)/pyproject.toml" --package chaos_gpu
layers:
	$(IN_SITE) lint-imports --no-logo --no-cache "$(CURDIR)/pyproject.toml"

bench:          ## measure the times that the documentation quotes
	@.ci/venv dev
	@for file in benchmarks/*.py; do echo "== $$file"; $(IN_VENV) python "$$file" || exit; done

sweep:          ## kill the runner at every request of a run, one after the other (long)
	@.ci/venv dev
	@$(IN_VENV) python tests/engine/sweep.py $(SWEEP_ARGS)

cluster-build:  ## build the programs of the cluster, once for each of their versions (some 25 minutes)
	@.ci/venv dev
	@$(IN_VENV) python -m tests.cluster build

cluster-up:     ## start a real control plane with GPU nodes on this machine (root, Linux, Go; builds it first)
	@.ci/venv dev
	@$(IN_VENV) python -m tests.cluster up

cluster-status: ## what runs on it
	@$(IN_VENV) python -m tests.cluster status

cluster-down:   ## end it and remove all of it; what was built stays in the cache
	@$(IN_VENV) python -m tests.cluster down

test-cluster:   ## the tests that need it; uses the one that runs, else one of its own
	@.ci/venv dev
	@$(IN_VENV) pytest --cluster=always -m cluster tests/cluster $(PYTEST_ARGS)

clean:          ## remove what make and the tools made
	rm -rf "$(VENV)" "$(VENV)-torch" .venv-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
