"""probing: ask a live PyTorch training job where, why and what to do.

    import probing
    probing.start()                                  # inside the job, or start it with PROBING=1

    job = probing.connect(4242)                      # from anywhere else
    job.query("SELECT * FROM steps").df()            # or .pl(), .arrow(), .rows(), a loop over it
    job.eval("optimizer.param_groups[0]['lr']").value
    job.doctor().findings                            # and what else the command line has

    await (await probing.connect_async(4242)).memory()

    ranks = probing.connect_many(["all"])            # every rank of this machine, as one database
    ranks.query("SELECT rank, max(step) FROM python.steps GROUP BY rank").to_arrow()

Importing this package loads nothing else: each name is loaded as it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import VERSION as __version__  # noqa: N811

if TYPE_CHECKING:
    from .api.asynchronous import AsyncJob, AsyncProcess, connect_async, connect_many_async
    from .api.process import Process, connect
    from .api.ranks import Job, connect_many
    from .client.listing import list_processes
    from .errors import ProbingError
    from .host import start, stop
    from .script.marks import metric, see_memory, span, step
    from .script.own_tables import ScriptTable, table

__all__ = [
    "AsyncJob",
    "AsyncProcess",
    "Job",
    "ProbingError",
    "Process",
    "ScriptTable",
    "__version__",
    "connect",
    "connect_async",
    "connect_many",
    "connect_many_async",
    "list_processes",
    "metric",
    "see_memory",
    "span",
    "start",
    "step",
    "stop",
    "table",
]

_HOMES = {
    "ProbingError": "errors",
    "AsyncJob": "api.asynchronous",
    "AsyncProcess": "api.asynchronous",
    "Job": "api.ranks",
    "Process": "api.process",
    "ScriptTable": "script.own_tables",
    "connect": "api.process",
    "connect_async": "api.asynchronous",
    "connect_many": "api.ranks",
    "connect_many_async": "api.asynchronous",
    "list_processes": "client.listing",
    "load_ipython_extension": "cli.notebook.extension",
    "unload_ipython_extension": "cli.notebook.extension",
    "metric": "script.marks",
    "see_memory": "script.marks",
    "span": "script.marks",
    "start": "host",
    "step": "script.marks",
    "stop": "host",
    "table": "script.own_tables",
}


def __getattr__(name: str) -> Any:
    """Load a public name from the module it lives in."""
    if name not in _HOMES:
        raise AttributeError(f"module 'probing' has no attribute {name!r}")
    from importlib import import_module

    try:
        home = import_module(f".{_HOMES[name]}", __name__)
    except ImportError as error:
        from .errors.querying import missing_library

        missing = missing_library(error)
        if missing is not None:
            raise missing from None
        raise
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)
