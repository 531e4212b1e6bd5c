"""Which processes are ours stands in their command lines."""

from __future__ import annotations

import pytest

from probing.own_files import is_our_command

OURS = [
    "python -I /lib/probing/server/sql_worker/sql_worker_main.py /run/7-1 512",
    "python /bin/probing 7 status",
    "python -P -m probing -t all doctor --watch",
    "python -W ignore -m probing serve",
    "python -Wignore -X dev -m probing.web",
    "python -X importtime -u -OO -W error -I -B /bin/probing serve",
    "python -um probing.cluster.node",
    "python -umprobing 7 status",
    *(
        f"python -m probing.{name}"
        for name in ("gateway.helper", "web.union_worker", "cluster.node")
    ),
]
OTHERS = [
    "python",
    "",
    "python train.py probing",
    "python -m probing._run train.py",
    "python -Wignore -m probing._run -u /bin/probing",
    "python -m a",
    "python -W probing train.py",
    "python -X -m train.py probing",
    "python -W ignore -c probing",
    "python -m",
]


@pytest.mark.parametrize("line", OURS)
def test_ours_are_known(line: str) -> None:
    """Commands, what they start, and the SQL worker."""
    assert is_our_command(line.split())


@pytest.mark.parametrize("line", OTHERS)
def test_others_are_not_ours(line: str) -> None:
    """Nor is the script that `probing run` runs."""
    assert not is_our_command(line.split())
