#!/bin/sh
# Writes requirements/*.txt anew from pyproject.toml: exact versions with hashes for every platform, and no address of any
# registry. Run it after a change of dependencies (make lock); needs uv. Arguments go to uv (for example --upgrade).
set -eu
cd "$(dirname "$0")/.."

lock() {
    out=requirements/$1.txt
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
        --output-file "$out" pyproject.toml "$@"
    ! grep -n '://' "$out" || { echo "$out names an address" >&2; exit 1; }
}

lock dev --extra demo --group dev --group build "$@"
# The smaller sets are held to the same versions.
lock demo --extra demo --group build --constraints requirements/dev.txt
lock runtime --extra openai --constraints requirements/dev.txt
uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
    --output-file requirements/checks.txt --group checks
