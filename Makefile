# The everyday words. `make` alone lists them.

PYTHON ?= python3
BIN := .venv/bin
SETUP := PYTHON="$(PYTHON)" scripts/setup
PYTEST_ARGS ?= -n auto --maxprocesses 4 --dist worksteal

.DEFAULT_GOAL := help

# The stamps live in .venv, so removing it starts afresh.
RUNTIME := .venv/.runtime
DEV := .venv/.dev

$(RUNTIME): requirements/runtime.lock pyproject.toml
	@$(SETUP) runtime

$(DEV): requirements/dev.lock pyproject.toml
	@$(SETUP) dev

.PHONY: help
help: ## list these words
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(RUNTIME) ## set up and run the example: for every user, for every order
	@$(BIN)/rune run examples/orders.json

.PHONY: dev
dev: $(DEV) ## set up and serve the API with a worker and a scheduler, on one file
	@$(BIN)/rune dev

.PHONY: test
test: $(DEV) ## set up and run every test (PYTEST_ARGS=… to choose)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: check
check: $(DEV) ## lint, format, types, layers of imports, locks
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(wildcard src benchmarks)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check_locks.py

.PHONY: fix
fix: $(DEV) ## repair what the linter and the formatter can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: bench
bench: $(DEV) ## measure the speed of this machine's Rune
	@$(BIN)/python -m benchmarks

.PHONY: bench-distributed
bench-distributed: $(DEV) ## measure it on RabbitMQ and Redis, beside a bare client
	@$(BIN)/python -m benchmarks.distributed

.PHONY: bench-shards
bench-shards: $(DEV) ## a million shards of a playbook's loop: speed, and memory beside ten thousand
	@$(BIN)/python -m benchmarks.shards

.PHONY: cover
cover: $(DEV) ## run every test and show the lines none of them reached
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

.PHONY: docs
docs: $(DEV) ## write the generated pages of the reference and the demo's picture again
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/picture.py

.PHONY: sim
sim: $(DEV) ## random workflows against the reference interpreter, for a long time
	RUNE_SIM_EXAMPLES=$${RUNE_SIM_EXAMPLES:-2000} $(BIN)/python -m pytest $(PYTEST_ARGS) --timeout 3600 tests/conformance/test_reference.py

.PHONY: chaos
chaos: $(DEV) ## the whole conformance suite and all faults on real servers, for an hour or so
	RUNE_CHAOS=1 RUNE_SIM_EXAMPLES=$${RUNE_SIM_EXAMPLES:-500} $(BIN)/python -m pytest $(PYTEST_ARGS) --timeout 3600 tests/conformance tests/distributed

.PHONY: lock
lock: $(DEV) ## resolve the dependencies again (LOCK_ARGS=--upgrade for the newest)
	@scripts/lock $(LOCK_ARGS)

.PHONY: clean
clean: ## remove .venv and everything generated
	rm -rf .venv .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
