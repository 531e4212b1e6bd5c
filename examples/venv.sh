#!/bin/sh
# Makes the virtual environment that quickstart.sh and tests/run.sh use, or leaves it as it is.
#
#   sh examples/venv.sh [EXTRAS [FILE ...]]      into .venv: this project with the extras, and torch
#
# Where all is new, what the files list is unpacked meanwhile, without what it needs in turn: to
# install it after that takes less.
# VENV names another folder, PYTHON the interpreter to make it with. WITHOUT_TORCH=1 leaves torch
# out. Which build of torch it is, is up to pip's configuration.
set -eu
cd "$(dirname "$0")/.."

VENV=${VENV:-.venv}
extras=${1:-}
torch=torch==2.13.0
[ $# -eq 0 ] || shift
listed=
for file; do listed="$listed -r $file"; done
stamp="$VENV/.installed${extras:+-$extras}"

# Prints the first interpreter that runs and is new enough; one that is only on PATH may do neither.
find_python() {
    for python in ${PYTHON:-python3.11 python3}; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    echo "no Python 3.10 or later was found: set PYTHON" >&2
    return 1
}

# Python compiles what is imported; pip would compile all of torch and more, for half a minute.
install() {
    "$VENV/bin/python" -m pip install -qq --disable-pip-version-check --no-compile "$@"
}

if [ ! -x "$VENV/bin/python" ]; then
    python=$(find_python)
    echo "making $VENV with $("$python" --version)"
    "$python" -m venv "$VENV"
fi
sources="pyproject.toml setup.py build_backend.py probing/page/package-lock.json"
if [ ! -e "$stamp" ] || [ -n "$(find $sources probing/ring/*.[ch] -newer "$stamp")" ]; then
    ours=".[cli${extras:+,$extras}]"
    if [ "${WITHOUT_TORCH:-0}" = 0 ] && ! "$VENV/bin/python" -c 'import torch' 2>/dev/null; then
        echo "installing into $VENV: -e $ours $torch"
        # Nothing of ours asks for torch: it is unpacked beside the rest, which takes as long.
        install --no-deps "$torch" $listed &
        unpacking=$!
        install --no-warn-conflicts -e "$ours"
        wait "$unpacking"
        install "$torch"  # what it needs
    else
        echo "installing into $VENV: -e $ours"
        install -e "$ours"
    fi
    touch "$VENV/.installed" "$stamp"
fi
if [ -n "$extras" ]; then
    "$VENV/bin/python" build_backend.py  # the page, where its sources have changed
fi
