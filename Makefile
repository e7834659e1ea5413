# Every target does its own set-up, and says what is missing when it cannot.
# Paths are relative, so that the tree may lie anywhere, also below a directory with spaces in its name.

PYTHON ?= python3
BIN := .venv/bin
LOCK := requirements/dev.txt
# Written last by each step: an interrupted set-up is begun again, a finished one is not repeated.
LOCKED := .venv/.locked
READY := .venv/.ready
# The lock names everything. Spark is half of the work, so that it is done beside the rest.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes --requirement
# Java maps its archive of Spark's classes into memory; tests/conftest.py knows the place. Spark's modules are compiled with it.
CLASSES := .venv/classes

# Six workers keep two cores busy: most tests wait for another process, or for the SDK. Rewritten tests are kept in
# __pycache__, whatever the environment says, or each worker would rewrite them all.
WORKERS ?= 6
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest
PARALLEL := -n $(WORKERS)
COLLECTED := build/collected$(if $(TESTS),-fast).txt
# What takes little time: neither Spark nor a browser, and few programs besides.
FAST := access amqp backlog cost engine filters guards ledger pairing store
# There, but with many connections, processes or files: for `make test` alone.
SLOW := backlog/test_preflight backlog/test_redrive ledger/test_exactness ledger/test_fleet_histories ledger/test_kills
SLOW += ledger/test_retention store/test_damage store/test_failed_turn

.PHONY: help setup demo check fast node-packages test types tests test-azure coverage test-all bench soak lint ruff format lock reference release clean docs
.DEFAULT_GOAL := help

help:
	@echo "make setup    the virtual environment .venv with every extra"
	@echo "make demo     set up, then an outage from beginning to end on two embedded namespaces; LIVE=1 in a browser too"
	@echo "make check    set up, then ruff, mypy and the fast tests; under a minute"
	@echo "make test     set up, then every check; CI adds what takes Java most (.ci/run)"
	@echo "make test-all every test with each Python that runs here, and with the lowest dependencies all but Spark"
	@echo "make test-azure  try on two real namespaces what can only be believed else; see docs/azure.md"
	@echo "make coverage every test, then how much of each room it has run"
	@echo "make bench    set up, then measure everything: one table against record and targets; PARTS=\"pump spool\" for some"
	@echo "make soak     set up, then the long forms of the tests, and a table of what came of each"
	@echo "make lint     ruff and mypy only"
	@echo "make format   let ruff rewrite the sources in the house format"
	@echo "make release  build wheel and sdist into dist, and try the wheel in an empty environment"
	@echo "make docs     build the documents as a site into build/site, and check its links"
	@echo "make reference  write docs/reference.md anew from the code"
	@echo "make lock     resolve the dependencies of pyproject.toml anew into $(LOCK)"
	@echo "make clean    remove .venv and the caches"

setup: $(READY)

$(LOCKED): $(LOCK)
	@sh scripts/doctor "$(PYTHON)" .venv
	@echo "setup: installing $(LOCK) into .venv: 1.4 GB, for some minutes, and only once"
	@"$(PYTHON)" -m venv --clear .venv
	@awk '/^[^ #]/ { name = /^pyspark==/ ? "spark" : "rest" } name { print > ".venv/" name ".txt" }' $(LOCK)
	@$(INSTALL) .venv/spark.txt & spark=$$!; $(INSTALL) .venv/rest.txt; rest=$$?; \
		wait $$spark && exit $$rest
	@echo "setup: compiling it"
	@$(BIN)/python -m compileall -q -j 0 .venv/lib > .venv/compiled.txt || true
	@touch $@

# The build back end is in the lock too, so nothing unlocked is fetched for the editable install.
$(READY): $(LOCKED) pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@echo "setup: done; \". .venv/bin/activate\" puts pairbus on the path"
	@touch $@

demo: $(READY)
	@mkdir -p build
	@if [ -n "$$JAVA_HOME" ] || command -v java >/dev/null; then engine=; else \
		echo "demo: there is no Java here, so a pump drains in the place of Spark"; engine=--no-spark; fi; \
	$(BIN)/pairbus drill $$engine $(if $(LIVE),--live) --report build/pairbus-drill.html

lint: ruff
	$(BIN)/mypy

ruff: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Imports the tests of a run, which leaves them rewritten: workers that begin at once would each rewrite all of them.
# They stay so until one of them changes.
$(COLLECTED): $(READY) $(shell find tests -name "*.py" -not -path "*/node_modules/*")
	@mkdir -p build
	@$(PYTEST) --collect-only --quiet $(TESTS) > $@.tmp || { cat $@.tmp; rm $@.tmp; exit 1; }
	@mv $@.tmp $@

$(CLASSES)/.made: $(LOCKED) scripts/class_archive.py | $(READY)
	@mkdir -p $(CLASSES)
	@$(BIN)/python scripts/class_archive.py $(CLASSES)
	@touch $@

node-packages: $(READY)
	@$(BIN)/python -c "from tests.conftest import install_all_node_packages as install; install()"

# Here the tests do not wait for mypy, nor it for them: neither takes two cores all the time.
check: $(READY)
	@$(MAKE) --no-print-directory --jobs --output-sync lint fast TESTS="$(FAST:%=tests/%) $(SLOW:%=--ignore=tests/%.py)"

# They wait for little: a worker more than cores costs its start and no more is gained.
fast: $(COLLECTED)
	$(PYTEST) -n 3 -q $(TESTS)

# Here neither: mypy works beside what every test needs, and beside the first tests. What it has found stands last.
test: ruff
	@mkdir -p build
	@$(MAKE) --no-print-directory --jobs --keep-going types tests; ended=$$?; cat build/types.txt; exit $$ended

types: $(READY)
	@$(BIN)/mypy > build/types.txt 2>&1

tests: $(COLLECTED) node-packages $(CLASSES)/.made
	$(PYTEST) $(PARALLEL)

test-all: $(READY)
	$(BIN)/python scripts/test_all.py

# Opt-in: two connection strings from the environment, and entities of its own there.
test-azure: $(READY)
	$(BIN)/python scripts/try_azure.py

coverage: $(READY)
	@mkdir -p build
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest $(PARALLEL)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage json --quiet -o build/coverage.json
	$(BIN)/python scripts/coverage_by_room.py build/coverage.json

release: $(READY)
	rm -rf dist
	$(BIN)/python -m hatchling build
	$(BIN)/python scripts/try_release.py dist

# One table of all ratios, and a line in bench/history.jsonl. PARTS chooses some, ROUNDS makes it shorter or longer.
bench: $(READY)
	@mkdir -p build
	$(BIN)/python -m bench.suite $(if $(ROUNDS),--rounds $(ROUNDS)) $(PARTS)

# All of them to the end, and a table. FORMS chooses some, SEED repeats the dice of an earlier run.
soak: $(READY)
	$(BIN)/python scripts/soak.py $(if $(SEED),--seed $(SEED)) $(FORMS)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Into build/site; every link is checked, and nothing of it comes from another machine.
docs: $(READY)
	env NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "docs: build/site/index.html"

reference: $(READY)
	$(BIN)/python scripts/reference

# pip's own configuration is left aside, so that the lock never depends on the mirrors of one machine.
lock:
	@sh scripts/doctor "$(PYTHON)"
	"$(PYTHON)" -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet pip-tools
	env -u PIP_FIND_LINKS -u PIP_INDEX_URL -u PIP_EXTRA_INDEX_URL PIP_CONFIG_FILE=/dev/null \
		CUSTOM_COMPILE_COMMAND="make lock" build/lock/bin/python -m piptools compile --quiet --generate-hashes \
		--allow-unsafe --strip-extras --all-extras --all-build-deps --no-emit-index-url --no-emit-find-links \
		--no-emit-trusted-host --output-file $(LOCK) pyproject.toml

clean:
	rm -rf .venv build dist .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
