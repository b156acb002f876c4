# Everything starts from Python, git and make alone: each goal makes the environment it needs, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test soak lint format bench clean

demo: $(STAMP)
	$(BIN)/python examples/quickstart.py

test: $(STAMP)
	$(BIN)/python -m pytest --ignore=tests/nano --ignore=tests/engines --ignore=tests/matrix/test_clusters.py
	$(BIN)/python -m pytest tests/engines --ignore=tests/engines/test_ray_on_spark.py  # Spark and Ray on their own
	$(BIN)/python -m pytest tests/engines/test_ray_on_spark.py tests/matrix/test_clusters.py  # and one inside the other
	$(BIN)/python -m pytest tests/nano  # and so do the native runtimes

soak: $(STAMP)
	$(BIN)/python -m tests.soak $(SOAK)  # SOAK="--minutes 2 --engines local spark ray"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 10), "Seamline needs Python 3.10 or newer"'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
