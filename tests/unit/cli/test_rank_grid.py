"""The grid of a job's ranks, where some do not answer."""

from __future__ import annotations

import socket

from probing.cli.reports.rank_grid import grid_of_members
from probing.client.recent_steps import SELECT_STEPS
from probing.cluster.job.membership import Member, Membership

COLUMNS = SELECT_STEPS.removeprefix("SELECT ").partition(", (")[0].split(", ")


def test_a_rank_that_is_late_keeps_the_figures_of_an_earlier_look() -> None:
    """They are marked as such, and make no state: that is what the finding has told."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
        member = Member(
            rank=0, host="vm", pid=None, world_size=1, endpoint=endpoint, state_word="seen"
        )
        row = dict.fromkeys(COLUMNS) | {"seq": 3, "step": 7, "duration": 0.5, "age_s": 0.1}
        before = row | {"seq": 2, "step": 6, "loss": 1.5}
        grid = grid_of_members(
            Membership(label="job", job="job", world_size=1, members=(member,)),
            timeout_s=0.2,
            token="x",
            known={endpoint: [row, before]},
        )
    (cell,) = grid.cells
    assert (cell.step, cell.duration_s, cell.is_late, cell.state) == (7, 0.5, True, "seen")
    assert cell.loss == 1.5, "the loss of the last step arrives with the next one"
