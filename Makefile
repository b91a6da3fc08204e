# Two commands matter: `make demo` and `make test`. Both set up what they need in .venv, inside this checkout, and reuse it.

PYTHON ?= python3.11
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
VENV := .venv
BIN := $(VENV)/bin
# Changes of a pin or of the package's own metadata make a new stamp, and with it a new installation.
STAMP := $(VENV)/.installed-$(shell cat requirements/*.lock pyproject.toml | sha256sum | cut -c1-16)

.PHONY: help setup demo demo-pages test check unit browser screenshots engine soak wheel docs bench format clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

setup: $(STAMP) ## Install vLLM (CPU), NIXL, kvflags and the tools into .venv (about 3 GB, 2 minutes)

$(STAMP): requirements/engine.lock requirements/dev.lock pyproject.toml
	@echo "==> Python environment in $(VENV) (once; about 3 GB)"
	@$(PYTHON) -m venv --clear $(VENV) || { echo "error: $(PYTHON) with its venv module is needed"; \
		echo; echo "hint: on Debian: apt-get install python3.11 python3.11-venv"; exit 2; }
	@echo "==> Engines and tools, pinned in requirements/"
	@$(BIN)/python -m pip install --no-deps --progress-bar off -r requirements/engine.lock -r requirements/dev.lock \
		| grep --line-buffered -E '^(Downloading|Installing|Successfully|ERROR)' | cut -c1-120
	@echo "==> kvflags itself"
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## Run the main job on real engines; KVFLAGS_DEMO_ONCE=1 ends by itself
	@$(BIN)/kvflags demo

test: setup check unit browser engine ## Everything that must pass: style, types, contracts, unit tests, pages, real engines

check: setup ## Style, types, import contracts
	@echo "==> ruff, mypy, import contracts"
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > .cache/imports.log 2>&1 || { cat .cache/imports.log; exit 1; }

unit: setup ## Tests without engines, two at a time (about 12 minutes)
	@echo "==> unit tests"
	@$(BIN)/python -m pytest -m "not engine and not browser" -q -n 2 --dist worksteal

demo-pages: setup ## The pages over what the demo left: KVFLAGS_DEMO_FOLDER=DIR make demo demo-pages
	@echo "==> the demo's own run in Chromium"
	@$(BIN)/python -m pytest -m browser -q tests/browser/test_demo.py

browser: setup ## Pages in Debian's Chromium, over whole fleets (about 5 minutes)
	@echo "==> pages in Chromium"
	@$(BIN)/python -m pytest -m browser -q tests/browser

screenshots: setup ## Take the pictures in docs/images anew, from the tests of the pages
	@KVFLAGS_SCREENSHOTS=1 $(BIN)/python -m pytest -m browser -q -p no:randomly tests/browser

engine: setup ## Tests on real vLLM engines with real NIXL transfers (about 25 minutes on 2 cores)
	@echo "==> tests on real engines"
	@$(BIN)/python -m pytest -m engine -v tests/engine

soak: setup ## The long tests: a million broken requests (an hour); KVFLAGS_SOAK_REQUESTS and KVFLAGS_SOAK_SEED change that
	@KVFLAGS_SOAK_REQUESTS=$${KVFLAGS_SOAK_REQUESTS:-1000000} $(BIN)/python -m pytest -q tests/collector/ingest/test_fuzz.py tests/collector/ingest/spans/test_readers.py
	@KVFLAGS_SOAK_KILLS=$${KVFLAGS_SOAK_KILLS:-50} $(BIN)/python -m pytest -q tests/collector/crash
	@KVFLAGS_SOAK_CASES=$${KVFLAGS_SOAK_CASES:-300} $(BIN)/python -m pytest -q tests/collector/rollout/test_agreement.py tests/collector/api/test_fuzz_api.py
	@KVFLAGS_SOAK_RELEASES=1 $(BIN)/python -m pytest -q tests/contract

wheel: setup ## Build the wheel into dist/
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist .

docs: setup ## Generate docs/reference from the code
	@$(BIN)/python docs/generate.py

bench: setup ## Run every benchmark and print its ratios
	@for script in benchmarks/*/*.py; do echo "==> $$script"; $(BIN)/python $$script || exit 1; done

format: setup ## Format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean: ## Remove the environment and everything generated
	rm -rf $(VENV) .cache dist build *.egg-info

$(shell mkdir -p .cache)
