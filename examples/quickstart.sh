#!/bin/sh
# The main job from nothing: install, start a small training with the agent inside, ask it.
#
#   sh examples/quickstart.sh
#
# Leaves .venv behind and nothing else. Any question that fails ends it with that exit code.
set -eu
cd "$(dirname "$0")/.."
here=$(pwd)

sh examples/venv.sh
PATH="$here/.venv/bin:$PATH"
export PATH

folder=$(mktemp -d)
training=
finish() {
    if [ -n "$training" ]; then
        kill "$training" 2>/dev/null || true
        wait "$training" 2>/dev/null || true
    fi
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

cd "$folder"
echo "\$ PROBING=1 python examples/train_gpt.py &"
PROBING=1 python "$here/examples/train_gpt.py" >training.log 2>&1 &
training=$!
PID=$training

# Prints how many steps the training has done; 0 while that is not yet known.
steps_done() {
    probing list --format json | python -c '
import json, sys
rows = {row["pid"]: row for row in json.load(sys.stdin)}
print(rows.get(int(sys.argv[1]), {}).get("step") or 0)' "$PID"
}

wait_for_step() {
    tries=0
    while :; do
        step=$(steps_done)
        [ "$step" -lt "$1" ] || return 0
        tries=$((tries + 1))
        if [ "$tries" -gt 240 ] || ! kill -0 "$training" 2>/dev/null; then
            echo "the training did not get to step $1:" >&2
            cat training.log >&2
            return 1
        fi
        sleep 0.5
    done
}

# Shows a command as one would type it, then runs it.
ask() {
    printf '\n$ probing'
    for word; do
        case $word in
        *[!A-Za-z0-9_./:=-]*) printf ' "%s"' "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    probing "$@"
}

wait_for_step 3

ask list
ask "$PID" backtrace
ask "$PID" query "
SELECT module, count(*) AS calls, round(avg(duration) * 1000, 2) AS avg_ms
FROM python.torch_trace
WHERE stage = 'forward'
GROUP BY module
ORDER BY sum(duration) DESC
LIMIT 8"
ask "$PID" query "
SELECT step, round(duration, 3) AS seconds, optimizer
FROM python.steps
ORDER BY step DESC
LIMIT 5"
ask "$PID" eval "print(optimizer.param_groups[0]['lr'])"
