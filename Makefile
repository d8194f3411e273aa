# Under the Hood. `make start` opens chapter 1; `make test` runs every test. Both set everything up first.
#
#   make start              environment, then JupyterLab on chapter 1
#   make start CPU=1        the same with PyTorch's CPU wheels (0.2 GB rather than 3 GB on Linux without a GPU)
#   make test, test-fast    every test; without the slow ones
#   make course             notebooks and record from the text sources
#   make sample-class       a made-up class of twelve:  make sample-class grade CHAPTER=01_basics
#   make release            the learners' zip, in dist/
#   make test-versions      the course on the versions of Colab and Binder, and on other Pythons (outside `make test`)
#   make bench              the measurements behind every number in the documentation

PYTHON ?= python3
CHAPTER ?= 01_basics
VENV := .venv
BIN := $(VENV)/bin
# nbgrader calls `alembic` by name, so the environment's programs must be on the path.
export PATH := $(CURDIR)/$(BIN):$(PATH)
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet
WHEELS := $(if $(CPU),--extra-index-url https://download.pytorch.org/whl/cpu)
# JupyterLab asks nobody about news and updates, so that nothing leaves the machine, and saves a notebook to no other file,
# whatever the notebook's own metadata tells jupytext.
LAB := $(VENV)/share/jupyter/lab/settings $(VENV)/etc/jupyter/jupyter_server_config.d
QUIET := mkdir -p $(LAB) && echo '{"ServerApp": {"jpserver_extensions": {"jupyterlab_jupytext": false}}}' > $(VENV)/etc/jupyter/jupyter_server_config.d/under_the_hood.json && echo '{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}' > $(VENV)/share/jupyter/lab/settings/overrides.json
FAILED := { echo "The packages could not be installed: the lines above say why. Next step: check the network, then run make again; it goes on where it stopped."; exit 1; }
NO_PYTHON := { echo "$(PYTHON) does not start. Next step: install Python 3.11, 3.12 or 3.13, or say where it is: make start PYTHON=/path/to/python3.12"; exit 1; }
NO_VENV := { echo "The environment could not be made in $(CURDIR)/$(VENV): the lines above say why. Next step: copy the course to a folder that you may write to, whose name has no colon (on Debian and Ubuntu Python's venv is a package of its own, python3-venv); then run make again."; exit 1; }

.PHONY: start test test-fast test-versions course grade sample-class bench release clean

start: $(VENV)/.lab
	@echo "Starting JupyterLab on chapter 1. Stop it with Ctrl-C."
	$(BIN)/jupyter lab course/01_basics/basics.ipynb

test: $(VENV)/.test
	@tests/system_packages.sh
	$(BIN)/python -m pytest

test-fast: $(VENV)/.test
	$(BIN)/python -m pytest -m "not slow"

test-versions: $(VENV)/.python
	$(BIN)/python tests/versions.py

course: $(VENV)/.test
	$(BIN)/python -m autograder.build

sample-class: $(VENV)/.lab
	$(BIN)/python -m autograder.sample_class $(CHAPTER)

grade: $(VENV)/.lab
	$(BIN)/python -m autograder grade $(CHAPTER) $(if $(TRUST),--trust-submissions)

release: $(VENV)/.test
	$(BIN)/python -m autograder.package

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV)

$(VENV)/.python:
	@$(PYTHON) -c pass || $(NO_PYTHON)
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else f"Python {v[0]}.{v[1]} is too old or too new: the course needs 3.11, 3.12 or 3.13. Say which one with: make start PYTHON=python3.12")'
	@echo "Making the environment in $(VENV) with $$($(PYTHON) --version)."
	@$(PYTHON) -m venv $(VENV) || $(NO_VENV)
	@$(PIP) --upgrade pip || $(FAILED)
	@touch $@

$(VENV)/.lab: $(VENV)/.python requirements.txt pyproject.toml
	@echo "Installing what the course needs (a few minutes; PyTorch is the largest part)."
	@$(PIP) -r requirements.txt --editable . $(WHEELS) || $(FAILED)
	@$(QUIET)
	@touch $@

$(VENV)/.test: $(VENV)/.python requirements.txt pyproject.toml constraints.txt
	@echo "Installing what the course and its tests need, in the pinned versions (a few minutes; PyTorch is the largest part)."
	@$(PIP) --constraint constraints.txt --editable '.[test]' $(WHEELS) || $(FAILED)
	@$(QUIET)
	@touch $@ $(VENV)/.lab
