"""Compiles a small program against a Python's own headers that prints where things lie.

Rules of this file: the headers of the Python that is asked about decide, not its version alone;
the names that a release gave to a field stand here and nowhere else.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from probing.attach.injectors.layouts import CALLS_TO_DO, LAYOUTS, PendingLayout, QueueLayout

_FACTS = (
    "import json, sys, sysconfig; paths = sysconfig.get_paths();"
    "print(json.dumps([sys.version_info[:2], paths['include'], paths['platinclude']]))"
)

_PROGRAM = """
#include <stddef.h>
#include <stdio.h>
#include <Python.h>
#include "pycore_runtime.h"
#include "pycore_interp.h"
#include "pycore_ceval.h"
typedef struct _pending_calls Q;
int main(void) {{
{lines}
    return 0;
}}
"""


def equals_the_table(version: tuple[int, int], layout: PendingLayout, bit: int | None) -> bool:
    """Whether what was derived is what `layouts` says; the queue's place may be any of several."""
    table = LAYOUTS.get(version)
    if table is None or bit not in (None, CALLS_TO_DO):
        return False
    if not set(layout.main_queues) <= set(table.main_queues):
        return False
    return layout == table._replace(main_queues=layout.main_queues)


def derive(python: str) -> tuple[tuple[int, int], PendingLayout, int | None]:
    """The version of a Python, the layout by its headers, and its `CALLS_TO_DO` bit.

    Raises:
        OSError: There is no such Python, or no compiler.
        subprocess.CalledProcessError: The compiler refuses its headers, and says why.
    """
    asked = subprocess.run([python, "-c", _FACTS], capture_output=True, text=True, check=True)
    facts = json.loads(asked.stdout)
    version = (facts[0][0], facts[0][1])
    folders = [str(Path(path, *tail)) for path in facts[1:] for tail in ((), ("internal",))]
    values = _compile_and_run(_expressions(version), folders)
    main_queue = values.pop("main_queue", None)
    ring = {name: values.get(f"ring.{name}") for name in QueueLayout._fields}
    own = {name: values.get(name) for name in PendingLayout._fields} | {
        "main_queues": () if main_queue is None else (main_queue,),
        "ring": QueueLayout(**ring),  # type: ignore[arg-type]
    }
    return version, PendingLayout(**own), values.get("CALLS_TO_DO")  # type: ignore[arg-type]


def _expressions(version: tuple[int, int]) -> dict[str, str]:
    """The C expression of each field that a release has."""
    runtime = {
        "initialized": "initialized",
        "finalizing": "_finalizing",
        "main_interpreter": "interpreters.main",
    }
    interpreter = {
        "queue": "ceval.pending",
        "threads": "threads.head" if version >= (3, 11) else "tstate_head",
    }
    thread = {"thread_next": "next", "thread_interpreter": "interp"}
    ring = {"lock": "lock", "calls": "calls", "first": "first", "next": "last"}
    extra = {"queue_limit": "NPENDINGCALLS - 1", "main_limit": "NPENDINGCALLS - 1"}
    if version >= (3, 12):
        runtime["main_queue"] = "ceval.pending_mainthread"
    if version >= (3, 13):
        runtime["main_thread"] = "main_tstate"
        thread["thread_breaker"] = "eval_breaker"
        ring |= {"lock": "mutex", "waiting": "npending", "limit": "max", "next": "next"}
        extra = {
            "queue_limit": "MAXPENDINGCALLS",
            "main_limit": "MAXPENDINGCALLS_MAIN",
            "CALLS_TO_DO": "_PY_CALLS_TO_DO_BIT",
        }
    else:
        interpreter["interpreter_breaker"] = "ceval.eval_breaker"
        ring["to_do"] = "calls_to_do"
    return {
        **{name: f"offsetof(_PyRuntimeState, {field})" for name, field in runtime.items()},
        **{name: f"offsetof(PyInterpreterState, {field})" for name, field in interpreter.items()},
        **{name: f"offsetof(PyThreadState, {field})" for name, field in thread.items()},
        **{f"ring.{name}": f"offsetof(Q, {field})" for name, field in ring.items()},
        "ring.size": "sizeof(Q)",
        "ring.entry_size": "sizeof(((Q *)0)->calls[0])",
        "ring.entries": "sizeof(((Q *)0)->calls) / sizeof(((Q *)0)->calls[0])",
        **extra,
    }


def _compile_and_run(expressions: dict[str, str], folders: list[str]) -> dict[str, int]:
    """The values of C expressions."""
    lines = [
        f'    printf("{name} %lu\\n", (unsigned long)({text}));'
        for name, text in expressions.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "layout.c"), Path(folder, "layout")
        source.write_text(_PROGRAM.format(lines="\n".join(lines)))
        include = [f"-I{path}" for path in folders]
        argv = ["gcc", "-DPy_BUILD_CORE", *include, "-w", str(source), "-o", str(program)]
        subprocess.run(argv, capture_output=True, text=True, check=True)
        ran = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    pairs = (line.split() for line in ran.stdout.splitlines())
    return {name: int(value) for name, value in pairs}
