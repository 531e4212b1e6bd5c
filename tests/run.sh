#!/bin/sh
# Everything that must hold: lint, types, layers, generated pages, then the tests with coverage.
#
#   sh tests/run.sh               everything, on every Python that is found
#   sh tests/run.sh ARGUMENTS     the same on one Python, with ARGUMENTS handed to pytest
#
# Goes on after a failure, and fails at the end if anything did.
set -eu
cd "$(dirname "$0")/.."

failed=
check() {
    echo "== $*"
    if ! "$@"; then
        failed="$failed
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

sh examples/venv.sh dev
bin=.venv/bin
$bin/python -m pip install -qq --disable-pip-version-check -r tests/frameworks.txt

check $bin/ruff check .
check $bin/ruff format --check .
check $bin/mypy
check $bin/lint-imports
check $bin/python docs/generate.py --check

# Runs the tests that need no torch on every other Python.
other_pythons() {
    failed=
    used=$($bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    for version in 3.10 3.11 3.12 3.13 3.14; do
        python=$(find_python $version)
        if [ "$version" = "$used" ] || [ -z "$python" ]; then
            continue
        fi
        venv=.venv-$version
        VENV=$venv PYTHON=$python WITHOUT_TORCH=1 sh examples/venv.sh dev
        check "$venv/bin/python" -m pytest -q -m anypython -p no:cacheprovider
    done
    [ -z "$failed" ]
}

# Runs one of two parts of the tests.
part() {
    name=$1
    shift
    echo "== pytest $*"
    COVERAGE_FILE=.coverage.$name $bin/python -m pytest --cov --cov-report= "$@"
}

# Runs the rest while the first part runs.
rest() {
    status=0
    other_pythons || status=1
    part second tests/test_[q-z]*.py || status=1
    return $status
}

if [ $# -gt 0 ]; then
    check $bin/python -m pytest --cov --cov-report=term "$@"
else
    # Side by side, since most tests wait for processes most of the time. So does a training that is
    # asked for some minutes; what is slow then is slow for all.
    logs=$(mktemp -d)
    trap 'rm -rf "$logs"' EXIT
    rest >"$logs/rest" 2>&1 &
    rest=$!
    nice -n 10 $bin/python -m tests.soak --minutes 5 >"$logs/soak" 2>&1 &
    soak=$!
    part first tests/test_[a-p]*.py || failed="$failed
  tests/test_[a-p]*.py"
    wait $rest || failed="$failed
  tests/test_[q-z]*.py, or the tests on other Pythons"
    wait $soak || failed="$failed
  the soak"
    cat "$logs/soak" "$logs/rest"
    $bin/python -m coverage combine --quiet .coverage.first .coverage.second
    $bin/python -m coverage report
fi

if [ -n "$failed" ]; then
    echo "failed:$failed" >&2
    exit 1
fi
