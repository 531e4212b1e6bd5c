"""How each command is used: the examples at the end of its help, and of the reference page.

Rules of this file: lines that can be typed as they stand, with a pid of one's own.
"""

from __future__ import annotations

from collections.abc import Mapping

ANSWERS: tuple[tuple[str, str], ...] = (
    ("what is wrong?", "probing PID doctor"),
    ("is it still making steps?", "probing PID"),
    ("why does the job hang?", "probing PID hang"),
    ("which module is slow?", "probing PID query @slowest-modules"),
    ("is it the data?", "probing PID dataloaders"),
    ("which rank is slow?", "probing -t all stragglers"),
    ("why is the loss NaN?", "probing PID doctor"),
    ("where does memory go?", "probing PID memory"),
    ("does memory leak?", "probing PID leak"),
    ("what is the learning rate?", "probing PID query @last-steps"),
    ("what changed between runs?", "probing diff OTHER PID"),
)
"""What is asked most, and the command that answers it: at the top of the list of commands."""

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "overview": ("probing 4242", "probing -t all", "probing 4242 --json"),
    "top": (
        "probing top                             # all processes of this machine",
        "probing 4242 top",
        "probing -t job:NAME top",
    ),
    "web": (
        "probing web                             # all processes of this machine",
        "probing web 4242 --port 8080",
        "probing -t job:NAME web",
    ),
    "mcp": ("probing mcp                             # started by a coding agent",),
    "report": (
        "probing 4242 report -o run.html",
        "probing /path/to/run/folder report -o run.html  # of a run that has ended",
    ),
    "run": ("probing run train.py --lr 3e-4", "probing run -m my_package.train"),
    "list": ("probing list", "probing list --all", "probing list --dead", "probing list --job"),
    "serve": ("probing serve --listen 0.0.0.0:9741",),
    "gateway": (
        "probing -t all gateway",
        "probing gateway /shared/runs --listen 0.0.0.0:9742 --tls-cert cert.pem --tls-key key.pem",
    ),
    "attach": ("probing attach 4242",),
    "detach": ("probing detach 4242", "probing detach 4242 --keep-record"),
    "doctor": (
        "probing 4242 doctor",
        "probing -t all doctor",
        "probing 4242 doctor --check likely      # exit code 1 on a finding",
        "probing 4242 doctor --against 3131      # what is worse than in that run",
        "probing -t all doctor --watch --webhook-env SLACK_URL",
    ),
    "backtrace": (
        "probing 4242 backtrace",
        "probing 4242 bt -v                      # every frame of every thread",
        "probing 4242 bt --locals",
        "probing -t all bt --snapshots 3         # what is stuck, what moves",
    ),
    "hang": ("probing 4242 hang", "probing -t all hang", "probing -t all hang --check"),
    "stragglers": ("probing -t all stragglers", "probing -t all stragglers --steps 100"),
    "diff": ("probing diff 3131 4242", "probing -t all diff"),
    "query": (
        'probing 4242 query "SELECT step, loss FROM steps ORDER BY step DESC LIMIT 5"',
        "probing 4242 query @slowest-modules",
        "probing 4242 query @                    # the saved questions",
        "probing 4242 query @slow-steps -p factor=2",
        "probing 4242 query my.sql -o answer.parquet",
        'probing -t all query "SELECT rank, max(step) FROM steps GROUP BY rank"',
    ),
    "eval": (
        "probing 4242 eval \"optimizer.param_groups[0]['lr']\"",
        'probing 4242 eval "trainer.grad_clip = 0.5"',
        'probing 4242 eval "loss.item()" --every 10',
        "probing 4242 eval -f look.py",
    ),
    "jobs": ("probing 4242 jobs", "probing 4242 jobs cancel 3"),
    "repl": ("probing 4242 repl",),
    "act": (
        "probing 4242 act lr --scale 0.1",
        "probing 4242 act checkpoint emergency.pt",
        "probing 4242 act undo",
    ),
    "act lr": ("probing 4242 act lr 1e-5", "probing 4242 act lr --scale 0.1"),
    "act clip": ("probing 4242 act clip 1.0", "probing 4242 act clip off"),
    "act checkpoint": ("probing 4242 act checkpoint emergency.pt",),
    "act cleanup": ("probing 4242 act cleanup",),
    "act nan-guard": ("probing 4242 act nan-guard skip",),
    "act keep-layers": ("probing 4242 act keep-layers 2",),
    "act skip-attention": ("probing 4242 act skip-attention --except last",),
    "act run": ("probing 4242 act run weight-decay value=0.1",),
    "act undo": ("probing 4242 act undo", "probing 4242 act undo 3"),
    "act list": ("probing 4242 act list",),
    "profile": (
        "probing 4242 profile",
        "probing 4242 profile --steps 5 -o profile.html",
        "probing 4242 profile -o steps.trace.json          # for Perfetto",
        "probing 4242 profile --sampling 100 --seconds 5   # from outside, also of a hang",
    ),
    "arm": ("probing 4242 arm nan", "probing 4242 arm nan --steps 500", "probing 4242 arm"),
    "gradients": ("probing 4242 gradients", "probing 4242 gradients --steps 3 -n 0"),
    "leak": ("probing 4242 leak", "probing 4242 leak --steps 30 --by module"),
    "summary": ("probing 4242 summary", "probing 4242 summary --depth 1"),
    "dataloaders": ("probing 4242 dataloaders",),
    "labels": ("probing 4242 labels", "probing 4242 labels -n 1 --format table"),
    "memory": (
        "probing 4242 memory",
        "probing 4242 memory -n 3 --referrers",
        "probing 4242 memory --line --watch 10",
        "probing 4242 memory --snapshot memory.pickle",
    ),
    "oom": ("probing 4242 oom",),
    "fit": (
        "probing 4242 fit --batch 64",
        "probing 4242 fit --max",
        "probing 4242 fit --max --memory 80GiB",
    ),
    "status": ("probing 4242 status",),
    "tables": ("probing 4242 tables", "probing 4242 tables steps"),
    "config": ("probing 4242 config", "probing 4242 config recording=off"),
    "export": (
        "probing 4242 export /shared/probing",
        "probing -t all export /shared/probing --project gpt",
    ),
    "history": ("probing history runs /shared/probing",),
    "history runs": ("probing history runs /shared/probing", "probing history runs --json"),
    "history show": (
        "probing history show /shared/probing node7-4553-20261124T174542",
        "probing history show 174542 --rank 3 --json",
    ),
    "history query": (
        'probing history query /shared/probing "SELECT run, max(step) FROM steps GROUP BY run"',
        "probing history query /shared/probing @slowest-modules",
        "probing history query /shared/probing --engine spark @slow-steps",
    ),
    "history compact": (
        "probing history compact /shared/probing",
        "probing history compact /shared/probing --keep-days 30 --keep-bytes 500GiB",
        "probing history compact /shared/probing --roll-up 14",
        "probing history compact s3://bucket/probing --roll-up 14",
    ),
    "history iceberg": (
        "probing history iceberg /shared/probing",
        "probing history iceberg s3://bucket/probing --catalog production",
    ),
    "history diff": (
        "probing history diff /shared/probing node7-4553-20261124 node7-5353-20261125",
        "probing history diff 174542 090000 --rank 3",
    ),
    "file": ("probing file memory-viz memory.pickle -o memory.html",),
    "file memory-viz": ("probing file memory-viz memory.pickle -o memory.html",),
    "file diff": ("probing file diff before.pickle after.pickle",),
    "file checkpoint": ("probing file checkpoint emergency.pt",),
}
