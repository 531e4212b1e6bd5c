#!/bin/sh
# Everything that must hold: lint, types, layers, generated pages, then the tests with coverage.
#
#   sh tests/run.sh               everything, on this Python, the oldest and the newest that are found
#   sh tests/run.sh quick         within a minute: what one runs after each edit
#   sh tests/run.sh ARGUMENTS     the checks, then pytest with ARGUMENTS
#
# Goes on after a failure, and fails at the end if anything did. scripts/nightly has the rest.
set -eu
cd "$(dirname "$0")/.."
TESTS_ROOT=$(pwd -P)
export TESTS_ROOT

# Several tests run at once: most of them wait for processes most of the time.
WORKERS=${WORKERS:-3}
failed=

# Runs a check; what it prints is shown when it is over, so that several may run at once.
check() {
    if [ "${quiet:-}" ]; then
        log=$(mktemp)
        "$@" >"$log" 2>&1 || {
            failed="$failed
  $*"
            cat "$log"
        }
        rm -f "$log"
    else
        echo "== $*"
        "$@" || failed="$failed
  $*"
    fi
}

# Prints an interpreter of that version if there is one that runs.
find_python() {
    for python in "python$1" "$HOME/.pyenv/versions/$1".*/bin/python; do
        if "$python" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            echo "$python"
            return
        fi
    done
}

# Prints the versions of Python to test beside the one in use: the oldest and the newest there are,
# or all of them.
other_versions() {
    found=
    for version in 3.10 3.11 3.12 3.13 3.14; do
        if [ -n "$(find_python $version)" ]; then
            found="$found $version"
        fi
    done
    used=$($bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ "${ALL_PYTHONS:-}" ]; then
        set -- $found
    else
        set -- $found
        oldest=${1:-}
        for newest; do :; done
        set -- $oldest ${newest:-}
    fi
    for version; do
        [ "$version" = "$used" ] || echo "$version"
    done | sort -u
}

checks() {
    check $bin/ruff check .
    check $bin/ruff format --check .
    check $bin/mypy
    check $bin/lint-imports
    check $bin/python docs/generate.py --check
    [ -z "$failed" ]
}

# Runs the tests that need no torch on other Pythons.
other_pythons() {
    for version in $(other_versions); do
        venv=.venv-$version
        VENV=$venv PYTHON=$(find_python "$version") WITHOUT_TORCH=1 sh examples/venv.sh dev
        check "$venv/bin/python" -m pytest -q -n 2 --dist loadfile \
            -m "anypython and not slow" -p no:cacheprovider
    done
    [ -z "$failed" ]
}

# Counts lines and branches in every Python that is started, but not in trainings: traced, they are
# so much slower that they are no longer what is tested.
counted() {
    COVERAGE_FILE=$TESTS_ROOT/.coverage COVERAGE_PROCESS_START=$TESTS_ROOT/pyproject.toml "$@"
}

sh examples/venv.sh dev
bin=.venv/bin

if [ "${1:-}" = quick ]; then
    quiet=yes
    check $bin/ruff check .
    check $bin/ruff format --check .
    check $bin/lint-imports
    check $bin/python -m pytest -q -n 2 --dist loadfile -m "quick or not slow" tests/unit tests/house/test_layers.py
elif [ $# -gt 0 ]; then
    checks || true
    check $bin/python -m pytest "$@"
else
    $bin/python -m pip install -qq --disable-pip-version-check -r tests/frameworks.txt
    logs=$(mktemp -d)
    trap 'rm -rf "$logs"' EXIT
    { checks && other_pythons; } >"$logs/checks" 2>&1 &
    checks=$!
    rm -f .coverage .coverage.*
    check counted $bin/python -m pytest -q -n "$WORKERS" --dist loadfile
    wait $checks || failed="$failed
  the checks, or the tests on other Pythons"
    cat "$logs/checks"
    $bin/python -m coverage combine --quiet
    $bin/python -m coverage report
fi

if [ -n "$failed" ]; then
    echo "failed:$failed" >&2
    exit 1
fi
