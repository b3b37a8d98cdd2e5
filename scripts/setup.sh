#!/bin/sh
# Makes a virtual environment and installs one locked set of packages, and this checkout, into it.
# Usage: scripts/setup.sh FOLDER SET, where requirements/SET.txt is the lock. Needs Python 3.11 or later and nothing else; what
# Debian leaves out of Python it fetches for itself, without a change to the system and without rights.
set -eu
cd "$(dirname "$0")/.."
venv=$1
set_name=$2

say() { printf '%s\n' "$*" >&2; }

candidates=${PYTHON:-python3.13 python3.12 python3.11 python3 python3.14}

# With the argument "ensurepip": a Python that can fill a virtual environment by itself.
find_python() {
    for candidate in $candidates; do
        if "$candidate" -I -c "import sys, venv, $1; sys.exit(sys.version_info < (3, 11))" >/dev/null 2>&1; then
            python=$candidate
            return 0
        fi
    done
    return 1
}

# Debian and Ubuntu ship pip apart from Python: its package is fetched and unpacked, not installed.
fetch_pip() {
    package=python3-pip-whl
    command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || return 1
    mkdir -p .cache/pip/lists/partial .cache/pip/archives/partial
    here=$PWD/.cache/pip
    own_lists="-o Dir::State::lists=$here/lists -o Dir::Cache=$here -o APT::Sandbox::User=$(id -un)"
    (
        cd "$here"
        rm -f ./*.deb
        # shellcheck disable=SC2086  # several options on purpose
        apt-get -qq download $package >/dev/null 2>&1 || { apt-get -qq $own_lists update && apt-get -qq $own_lists download $package; } >&2
        dpkg-deb -x ./*.deb .
    ) || return 1
    pip_wheel=$(find "$here/usr" -name 'pip-*.whl' | head -n 1)
    [ -n "$pip_wheel" ]
}

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    if find_python ensurepip; then
        say "Making $venv with $("$python" -V)"
        "$python" -m venv --clear "$venv"
    elif find_python sys; then
        say "Making $venv with $("$python" -V), whose venv module is incomplete; fetching pip for it"
        fetch_pip || {
            say "That failed. An administrator adds it with: apt-get install python3-venv"
            exit 1
        }
        "$python" -m venv --clear --without-pip "$venv"
        "$venv/bin/python" "$pip_wheel/pip" install -qq --no-index --disable-pip-version-check "$pip_wheel"
    else
        say "Agiwo needs Python 3.11 or later and found none by the names: $candidates."
        say "Install it, or name it: make … PYTHON=/path/to/python3"
        exit 1
    fi
fi

pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

say "Installing requirements/$set_name.txt (about a minute the first time)"
# The lock names every package with its hashes, so nothing is left to resolve or to build.
pip install -qq --no-deps --only-binary :all: --require-hashes --requirement "requirements/$set_name.txt"
# The tools that check the files of deploy/ stand apart from the package.
[ "$set_name" = checks ] || pip install -qq --no-deps --no-build-isolation --no-index --editable .
