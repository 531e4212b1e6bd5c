#!/bin/sh
# Everything that must hold: lint, types, layers, generated pages, then the tests.
#
#   sh tests/run.sh               everything, on this Python; with COVERAGE=yes, lines are counted
#   sh tests/run.sh quick         within a minute: what one runs after each edit
#   sh tests/run.sh ends          what needs no torch, on the oldest and the newest Python found
#   sh tests/run.sh pythons       the same on every Python that is found, and the slow tests of it
#   sh tests/run.sh trainings     the tests, with the lines counted that run in trainings
#   sh tests/run.sh ARGUMENTS     pytest with ARGUMENTS
#
# Goes on after a failure, and fails at the end if anything did. scripts/nightly has the rest.
# WORKERS says how many tests run at once: most of them wait for processes most of the time. They
# run in the order in which they stand, but for the longest files, which come first (LONGEST in
# tests/conftest.py); ORDER=-prandomly, as at night, shuffles them all.
set -eu
cd "$(dirname "$0")/.."
TESTS_ROOT=$(pwd -P)
export TESTS_ROOT
# Thousands of processes import the same files: each would compile them anew.
unset PYTHONDONTWRITEBYTECODE
failed=

check() {
    echo "== $*"
    "$@" || failed="$failed
  $*"
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

# Prints the versions that are found but for the one in use.
other_versions() {
    used=$($bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    for version in 3.10 3.11 3.12 3.13 3.14; do
        if [ "$version" != "$used" ] && [ -n "$(find_python $version)" ]; then
            echo $version
        fi
    done
}

# Makes the environment of another Python, and has compiled once what all workers would compile.
# Lists the files with tests that need no torch: no other is collected, by any worker.
make_venv() {
    VENV=.venv-$1 PYTHON=$(find_python "$1") WITHOUT_TORCH=1 sh examples/venv.sh dev || return
    grep -rlw anypython --include='test_*.py' tests | sort >".venv-$1/anypython.txt"
    {
        ".venv-$1/bin/python" -m compileall -q probing agent cli
        ".venv-$1/bin/python" -m pytest --collect-only -q -p no:randomly "@.venv-$1/anypython.txt"
    } >/dev/null 2>&1 || true
}

# Runs what needs no torch on other Pythons, whose environments are made at once.
on_pythons() {
    versions=$1
    shift
    making=
    for version in $versions; do
        make_venv "$version" &
        making="$making $!"
    done
    for one in $making; do
        wait "$one" || failed="$failed
  an environment of another Python: see above"
    done
    for version in $versions; do
        check ".venv-$version/bin/python" -m pytest -q -n "${WORKERS:-3}" --dist loadfile -p no:cacheprovider \
            "$@" "@.venv-$version/anypython.txt"
    done
    [ -z "$failed" ]
}

checks() {
    check $bin/ruff check .
    check $bin/ruff format --check .
    check $bin/lint-imports
}

all_checks() {
    checks
    check $bin/mypy
    check $bin/python docs/generate.py --check
}

# Runs the first of its arguments beside the others, and prints last what it had to say.
beside() {
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    {
        $1
        [ -z "$failed" ]
    } >"$log" 2>&1 &
    begun=$!
    shift
    "$@"
    wait $begun || failed="$failed
  the checks: see above"
    cat "$log"
}

tests() {
    # What all workers and commands would compile at once is compiled meanwhile, the tests' assertions too.
    {
        $bin/python -m compileall -q probing agent cli
        $bin/python -m pytest --collect-only -q -p no:randomly
    } >/dev/null 2>&1 &
    collecting=$!
    $bin/python -m pip install -qq --disable-pip-version-check --no-compile $(printf -- '-r %s ' $LISTED)
    wait $collecting || true
    # As they stand: tests/unit comes last, whose files are short, so that no worker is idle. A run
    # that does not come to its end is interrupted: then pytest says what has failed until then.
    check timeout --signal=INT --kill-after=60 "${LIMIT_S:-3000}" $bin/python -m pytest -q -n "${WORKERS:-4}" --dist loadfile --no-loadscope-reorder \
        --durations=60 ${ORDER:--p no:randomly}
}

# Runs the tests, and counts lines and branches in them and in the commands that they fork.
counted() {
    rm -f .coverage .coverage.*
    COVERAGE_FILE=$TESTS_ROOT/.coverage COVERAGE_PROCESS_START=$TESTS_ROOT/pyproject.toml tests
    $bin/python -m coverage combine --quiet
    $bin/python -m coverage report
}

# What the tests of frameworks, histories and notebooks need beside it.
LISTED="tests/frameworks.txt tests/history.txt tests/notebooks.txt"
case "${1:-}" in
"" | trainings) sh examples/venv.sh dev $LISTED ;;
*) sh examples/venv.sh dev ;;
esac
bin=.venv/bin

case "${1:-}" in
quick)
    # No test here looks at a log, and to collect it takes as long as many a test.
    beside checks check $bin/python -m pytest -q -n 3 --dist loadfile -p no:logging \
        ${ORDER:--p no:randomly} -m "not slow" tests/unit
    ;;
ends)
    on_pythons "$(other_versions | sed -n '1p;$p' | sort -u)" -m "anypython and not slow" || true
    ;;
pythons)
    on_pythons "$(other_versions)" -m anypython || true
    ;;
trainings)
    TESTS_TRACE_TRAININGS=1 counted
    ;;
"")
    if [ -n "${COVERAGE:-}" ]; then beside all_checks counted; else beside all_checks tests; fi
    ;;
*)
    check $bin/python -m pytest "$@"
    ;;
esac

if [ -n "$failed" ]; then
    echo "failed:$failed" >&2
    exit 1
fi
