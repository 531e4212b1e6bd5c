"""Has a process group go, of which the agent's record cannot be cleared; prints what came of it."""

from __future__ import annotations

import gc
import json
import tempfile
import weakref
from typing import Any

from torch import distributed as dist

import probing
from probing.agent import lifecycle
from probing.agent.sources.collectives.groups import Groups


class Kept(dict[int, Any]):
    """Nothing can be taken out of it."""

    def pop(self, *_: Any) -> Any:
        raise KeyError("injected")


if __name__ == "__main__":
    probing.start()
    meeting = f"file://{tempfile.mkdtemp()}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    (groups,) = [thing for thing in gc.get_objects() if type(thing) is Groups]
    groups.by_id = Kept(groups.by_id)
    (group,) = groups.all()
    gone: list[Any] = []
    weakref.finalize(group.torch_group(), gone.append, None)
    dist.destroy_process_group()
    gc.collect()
    agent = lifecycle.current()
    assert agent is not None
    reports = {report.source: report for report in agent.training.source_reports()}
    report = reports["collectives"]
    print(json.dumps({"is_gone": bool(gone), "faults": report.faults, "note": str(report.note)}))
