#!/bin/sh
# Makes the virtual environment and installs one locked set of packages and this checkout into it.
# Usage: scripts/setup.sh FOLDER SET, where requirements/SET.txt is the lock. Needs Python 3.11 or later and nothing else.
set -eu
cd "$(dirname "$0")/.."
venv=$1
set_name=$2

say() { printf '%s\n' "$*" >&2; }

is_new_enough() { "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# Debian ships Python without the part that fills a virtual environment.
can_make_venvs() { "$1" -I -c 'import venv, ensurepip' >/dev/null 2>&1; }

find_python() {
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3 python3.14}; do
        is_new_enough "$candidate" || continue
        can_make_venvs "$candidate" && { python=$candidate; return 0; }
        incomplete=${incomplete:-$candidate}
    done
    return 1
}

install_venv_module() {
    package=$("$incomplete" -I -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        say "$incomplete has no venv module. On Debian and Ubuntu an administrator adds it with: apt-get install $package"
        exit 1
    fi
    say "$incomplete has no venv module; installing $package"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2
}

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python='' incomplete=''
    if ! find_python && [ -n "$incomplete" ]; then
        install_venv_module
        find_python || true
    fi
    if [ -z "$python" ]; then
        say "Agiwo needs Python 3.11 or later; looked for: ${PYTHON:-python3.13 python3.12 python3.11 python3 python3.14}."
        say "Install one, or name it: make PYTHON=/path/to/python3 …"
        exit 1
    fi
    say "Making $venv with $("$python" -V)"
    "$python" -m venv --clear "$venv"
fi

pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

say "Installing requirements/$set_name.txt (about a minute the first time)"
# The lock names every package with its hashes, so nothing is left to resolve or to build.
pip install -qq --no-deps --only-binary :all: --require-hashes --requirement "requirements/$set_name.txt"
# The tools that check the files of deploy/ stand apart from the package.
[ "$set_name" = checks ] || pip install -qq --no-deps --no-build-isolation --no-index --editable .
