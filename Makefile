# Every target runs in .venv, which `make` sets up with the pinned torch.
#   make TORCH=2.15.0 test             use another torch, in an environment of its own
#   make PYTHON=/usr/bin/python3 test  use your own environment; nothing is installed into it
#   make test ARGS="-k mul"            pass arguments to pytest, python -m benchmarks or python -m examples
#   make test ARGS=-n0                 run tests in one process; the default is one per core, at most 4
DEFAULT_TORCH := 2.11.0
TORCH ?= $(DEFAULT_TORCH)
ARGS ?=

ifdef PYTHON
python := $(PYTHON)
set_up = $(PYTHON) -m tools.bootstrap --check torch ninja $(1)
else
venv := .venv$(if $(filter-out $(DEFAULT_TORCH),$(TORCH)),-torch$(TORCH))
python := $(venv)/bin/python
set_up = python3 -m tools.bootstrap --torch $(TORCH) $(venv)
endif
build = $(python) -m tools.native_build
has_gpu = $(python) -c "import sys, torch; sys.exit(not torch.cuda.is_available())"

.PHONY: help demo test test-torch bench ladder build format check sanitize docs wheel wheel-check clean

help:
	@echo "make demo           set up, build, and run the operators on real input"
	@echo "make test           set up, build, and run every test that this machine can run"
	@echo "make test-torch     set up, build, and run the tests that depend on the version of torch"
	@echo "make bench          measure every operator beside its peers (needs a GPU)"
	@echo "make ladder         measure every step of the optimisation ladders (needs a GPU)"
	@echo "make build          set up and build the library for this machine's GPUs, or for 9.0 without one"
	@echo "make format         format the C++, CUDA and Python sources"
	@echo "make check          check format, lint, types and prose of all sources"
	@echo "make sanitize       run the tests marked sanitize under compute-sanitizer (needs a GPU)"
	@echo "make docs           build the documentation site in build/docs"
	@echo "make wheel          make the wheel for every torch and GPU (23 minutes of one core)"
	@echo "make wheel-check    check the wheel, and test it beside the oldest and the newest torch"
	@echo "make clean          remove build products; environments stay"
	@echo "The first lines of the Makefile explain TORCH=, PYTHON= and ARGS=."

build:
	@$(call set_up)
	@$(build)

test:
	@$(call set_up,pytest)
	@$(build)
	@$(python) -m tools.test_build $(ARGS)
	@$(python) -m pytest $(ARGS)
	@! $(has_gpu) || $(python) -m pytest -n0 -m "gpu and (alone or gib or large)" $(ARGS) || [ $$? -eq 5 ]

test-torch:
	@$(call set_up,pytest)
	@$(build)
	@$(python) -m pytest -m torch_version $(ARGS)

demo:
	@$(call set_up,rich matplotlib networkx sklearn pygame)
	@$(build)
	@$(python) -m examples $(ARGS)

bench:
	@$(call set_up)
	@$(build)
	@$(python) -m benchmarks $(ARGS)

ladder:
	@$(call set_up)
	@$(build)
	@$(python) -m benchmarks ladder $(ARGS)

sanitize:
	@$(call set_up,pytest)
	@$(build)
	@$(python) -m tools.sanitize $(ARGS)

format check:
	@$(call set_up)
	@$(python) -m tools.style $@

docs:
	@$(call set_up,matplotlib)
	@$(build)
	@$(python) -c "import furo, myst_parser, sphinx" 2>/dev/null || $(python) -m pip install -q -r tools/requirements-docs.txt
	@$(python) -m sphinx -q -E -W --keep-going -b html docs build/docs
	@echo "The pages are in build/docs: open build/docs/index.html."

wheel:
	@$(call set_up)
	@$(python) -m tools.wheel $(ARGS)

wheel-check:
	@$(call set_up)
	@$(python) -m tools.wheel_check $(ARGS)

clean:
	rm -rf build dist torch_ops/lib examples/out *.egg-info
	find torch_ops tools tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +
