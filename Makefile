# Two commands do all their own set-up: `make demo` and `make test`.
# PYTHON=python3.12 names the interpreter, TORCH_INDEX another package index for torch, ARGS flags for the demo.
.PHONY: demo test lint bench setup

HA := .venv/bin/harness-adapters

demo:
	@scripts/setup.sh
	@$(HA) demo $(ARGS)

setup:
	@scripts/setup.sh dev

test: setup
	@$(HA) doctor --prepare
	.venv/bin/python -m pytest $(ARGS)

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: setup
	@$(HA) doctor --prepare
	.venv/bin/python bench/engine.py
	.venv/bin/python bench/training.py
	.venv/bin/python bench/sandbox.py
	.venv/bin/python bench/guard.py
