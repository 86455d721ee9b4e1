# make demo and make test do all set-up themselves, in .venv, from a bare clone.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: setup demo test lint clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	@echo "Setting up .venv with $(PYTHON); the first time takes a minute or two."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,plot,datasets,serve,postgres]'
	@touch $@

demo: setup
	@$(BIN)/python examples/demo.py

lint: setup
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n 2 --dist worksteal

clean:
	rm -rf .venv out build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
