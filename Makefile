# make demo and make test do all set-up themselves, in .venv, from a bare clone.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: setup demo test lint docs package soak clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	@echo "Setting up .venv with $(PYTHON); the first time takes a minute or two."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs,plot,datasets,serve,postgres]'
	@touch $@

demo: setup
	@$(BIN)/python examples/demo.py

lint: setup
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n 2 --dist worksteal

# The documentation's site, in out/site. Warnings are errors; nothing is loaded from the network.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --clean

# The wheel, alone in a bare environment, completes a table.
package: setup
	.ci/package $(BIN)/python

# What the service must stand, at length: 50 minutes on 2 cores. The page needs Debian's chromium, and
# npm for what looks for faults of accessibility; PostgreSQL its server's programs; ML-1M its data.
soak: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[soak]'
	npm install --silent --no-save --prefix .soak axe-core@4.14.0
	EXCHANGEABLE_SCREENSHOTS=out/page $(BIN)/pytest tests/serve/test_page.py
	$(BIN)/python soak/serve_page.py
	$(BIN)/python soak/serve_schema.py --cases 2000
	$(BIN)/python soak/serve_uploads.py --files 300
	$(BIN)/python soak/serve_attacks.py --table ml-1m
	$(BIN)/python soak/serve_kill.py --kills 100 --database sqlite
	$(BIN)/python soak/serve_kill.py --kills 100 --database postgresql
	$(BIN)/python soak/serve_followers.py --seconds 120
	$(BIN)/python benchmarks/serve_load.py --seconds 180 --overload

clean:
	rm -rf .venv .venv-kernels .soak out build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
