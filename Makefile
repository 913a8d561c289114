# make help   say what each target does
# make demo   a retune to its answer on generated data (SQLite; GPUs if there are any, else the CPU)
# make notebooks   run the notebooks as their .py say, and keep what they show: no database, no GPU
# make demo-study  make those exported studies again: small networks on a CPU, some minutes
# make test   linters, types, layers, and the whole test suite
# make docs   write the pages that follow from the code: docs/cli.md, docs/api.md, the demo's output, the map of the code
# make test-libraries  forecasts by libraries, in .venv-libraries, and part of make test
# make chaos  workers killed, frozen and cut off, databases restarted, every result accounted for (a quarter of an hour)
# make check  linters, types, layers: a minute, and part of make test
# make check-neuralforecast  that library's own check of our model classes
# make clean  remove .venv, .venv-libraries and what was built
PYTHON ?= python3
VENV := .venv
LIBRARIES := .venv-libraries
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt
# Where it is set, as in many containers, each new process compiles the package again: a second.
unexport PYTHONDONTWRITEBYTECODE
STORAGE := sqlite:///storage/demo.db

.PHONY: help demo demo-study docs notebooks test test-libraries chaos check check-neuralforecast clean

help:
	@sed -n 's/^# \(make [a-z-]*\) *\(.*\)/\1: \2/p' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.installed
	$(BIN)/tuner retune --variant rmsnorm --task demo --searches 1 --trials 22 --confirm-seeds 6 --max-epochs 100 --storage $(STORAGE)

QUICK := notebooks/data
QUICK_STORAGE := sqlite:///storage/quick.db
QUICK_STUDIES := --variant $(QUICK)/small-original.toml,$(QUICK)/small-rmsnorm.toml --task $(QUICK)/quick.toml

demo-study: $(VENV)/.installed
	$(BIN)/tuner launch $(QUICK_STUDIES) --trials 14 --no-prune --cpu --workers 2 --storage $(QUICK_STORAGE)
	$(BIN)/tuner verify $(QUICK_STUDIES) --choose front --top 2 --seeds 6 --cpu --workers 2 --storage $(QUICK_STORAGE)
	$(BIN)/tuner study export quick-small-original --output $(QUICK)/original.json.gz --storage $(QUICK_STORAGE)
	$(BIN)/tuner study export quick-small-rmsnorm --output $(QUICK)/rmsnorm.json.gz --storage $(QUICK_STORAGE)

notebooks: $(VENV)/.installed-test
	$(BIN)/jupytext --to ipynb --update notebooks/*.py
	$(BIN)/jupyter execute --inplace --NotebookClient.record_timing=False --kernel_name=python3 notebooks/*.ipynb

docs: $(VENV)/.installed
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/code_map.py

# Five processes on two cores: many tests wait for engines, servers and workers of their own. What is
# compiled is kept: hundreds of files, for each process that the tests start. What failed beside others
# is named, and runs once more by itself: a race for two cores is no defect, what fails twice is one.
TESTS := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest
test: $(VENV)/.installed-test check test-libraries
	$(TESTS) -n 5 --dist loadfile --no-loadscope-reorder -q --durations=40 || \
		$(TESTS) -q --last-failed --last-failed-no-failures none

# statsforecast asks for an older pandas, which stands before the rest of .venv here. A minute.
$(LIBRARIES)/.installed: pyproject.toml constraints.txt $(VENV)/.installed-test
	$(PYTHON) -m venv $(LIBRARIES)
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > $$(echo $(LIBRARIES)/lib/python3*/site-packages)/behind.pth
	$(LIBRARIES)/bin/python -m pip install --quiet --constraint constraints.txt \
		$$($(BIN)/python -c 'import tomllib; found = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; print(*found["baselines"], *found["foundation"], *found["llm"], "pandas<3")')
	touch $@

test-libraries: $(LIBRARIES)/.installed
	PYTHONPATH=. $(LIBRARIES)/bin/python -m pytest -q tests/libraries

chaos: $(VENV)/.installed-test
	PYTHONPATH=. $(BIN)/python benchmarks/chaos/run.py

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("tuner needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) torch
	$(INSTALL) --editable ".[pictures]"
	touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) torch
	$(INSTALL) --editable ".[test]"
	touch $@ $(VENV)/.installed

# neuralforecast's own check of our model classes; it needs an older pandas, which stays apart
check-neuralforecast: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --target build/pandas2 --no-deps 'pandas<3' pytz
	PYTHONPATH=build/pandas2:. $(BIN)/python benchmarks/neuralforecast_classes/check.py

clean:
	rm -rf $(VENV) $(LIBRARIES) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
