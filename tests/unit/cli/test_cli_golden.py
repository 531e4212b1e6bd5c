"""What every renderer draws, compared letter by letter with files in ``tests/unit/cli/golden``.

After a wanted change: ``UPDATE_GOLDEN=1 python -m pytest tests/unit/cli/test_cli_golden.py``,
then read the difference before it is committed.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from probing.allocations import Event, Frame as CodeFrame, Recording, compare
from probing.cli.render.cells import is_number, is_time, short_texts
from probing.cli.render.errors import render_error, render_failure
from probing.cli.render.memory.fit import render_fit, render_largest
from probing.cli.render.memory.leak import render_leak
from probing.cli.render.memory.line import render_cleaned, render_memory_line
from probing.cli.render.memory.oom import render_oom
from probing.cli.render.memory.recording import (
    render_difference,
    render_recording,
    render_status,
)
from probing.cli.render.memory.report import memory_markdown, render_memory
from probing.cli.render.process.catalog import render_columns, render_tables
from probing.cli.render.process.eval_jobs import render_jobs
from probing.cli.render.process.evaluation import render_repeated, render_result
from probing.cli.render.process.processes import render_processes
from probing.cli.render.process.settings import render_settings
from probing.cli.render.process.stacks import render_backtrace, render_folded
from probing.cli.render.profiling.tables import (
    profile_head,
    profile_sections,
    samples_head,
    samples_sections,
)
from probing.cli.render.ranks.coverage import render_coverage
from probing.cli.render.ranks.differences import render_differences
from probing.cli.render.ranks.evaluations import render_results
from probing.cli.render.ranks.members import render_members
from probing.cli.render.ranks.stack_classes import render_folded_classes, render_stack_classes
from probing.cli.render.ranks.stragglers import render_stragglers
from probing.cli.render.ranks.union import render_moved, render_plan
from probing.cli.render.rows import WRITERS
from probing.cli.render.sections import markdown_sections, render_sections
from probing.cli.render.table import Heading, render_table
from probing.cli.render.training.dataloaders import render_loaders
from probing.cli.render.training.labels import render_label_table, render_labels
from probing.cli.render.training.summary import render_summary, summary_markdown
from probing.client.listing import ProcessSummary
from probing.cluster.job.membership import Member, Membership, missing_member
from probing.cluster.job.outcomes import Coverage
from probing.cluster.ranks.differences import compare_facts
from probing.cluster.ranks.evaluations import fold_results
from probing.cluster.ranks.slow.stragglers import find_stragglers
from probing.cluster.ranks.stack_classes import merge_stacks
from probing.cluster.union.statements.leaves import Leaf, Plan
from probing.diagnosis.dataloading import LoaderReport
from probing.diagnosis.memory.memory_cleaning import Cleaned
from probing.diagnosis.model_summary import plain_summary, summary_of
from probing.errors import NoSuchProcess, QueryTimedOut, SqlError
from probing.messages.about.allocation import RecordStatus
from probing.messages.about.eval import EvalJob
from probing.messages.about.fit import FitAnswer, FitPart, FitPeak, FitShape, LargestFit
from probing.messages.common import (
    Backtrace,
    EvalResult,
    Frame,
    LiveRows,
    Local,
    SettingValue,
    TablesAnswer,
    TableStatus,
    ThreadStack,
)
from probing.profiling import (
    Category,
    Gap,
    Kernel,
    ModuleTime,
    PhaseTime,
    Profile,
    StepSpan,
    parse_folded,
)
from probing.tables import TABLES_BY_NAME, Column, Table
from tests.harness.golden import assert_golden
from tests.unit.cli.action_samples import draw_act, draw_act_of_ranks, draw_acts, draw_checkpoint
from tests.unit.cli.data_samples import LABELS, OOM, OOM_NONE, REPORT
from tests.unit.cli.finding_samples import draw_armed, draw_findings, draw_gradients
from tests.unit.cli.memory_samples import MEMORY_REPORT, NOTHING_SEEN
from tests.unit.memory.leak_samples import (
    FAILED,
    GROWN_BY_MODULE,
    GROWN_BY_PHASE,
    HEALTHY,
    KEPT_GRAPH,
    OUTSIDE,
)
from tests.unit.ranks.hang_samples import (
    draw_early,
    draw_hang,
    draw_mismatch,
    draw_process,
    draw_several,
)
from tests.unit.ranks.rank_samples import (
    FACTS,
    RANKS_SEEN,
    RESULTS,
    STRAGGLERS,
    ddp_job,
    one_asleep,
)

pytestmark = pytest.mark.anypython

GOLDEN = Path(__file__).parent / "golden"
NOW_NS = 1_800_000_000_000_000_000

ROWS = pa.table(
    {
        "step": pa.array([1, 2, None], pa.int64()),
        "module": ["blocks.0.attn", "a|b \x1b[31mred", None],
        "duration": [0.000123456789, float("nan"), None],
        "failed": [True, False, None],
        "start": pa.array([0, 1_700_000_000_123_456_789, None], pa.timestamp("ns")),
        "word": ['he said "no", twice', "", "日本語"],
    }
)


def _drawn(width: int | None, *, color: bool = False, more_rows: int = 0) -> str:
    headings = [
        Heading(name=f.name, is_number=is_number(f.type), is_whole=is_time(f.type))
        for f in ROWS.schema
    ]
    columns = [short_texts(column.combine_chunks()) for column in ROWS.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return render_table(
        headings, rows, width=width, color=color, more_rows=more_rows, all_by="--all"
    )


def _written(form: str) -> str:
    return b"".join(WRITERS[form](ROWS.schema, ROWS.to_batches())).decode()


FRAMES = (
    Frame(func="wait", file="/lib/threading.py", lineno=327, line="    waiter.acquire()"),
    Frame(func="forward", file="libtorch.so", lineno=0, kind="native"),
    *(Frame(func="recurse", file="/x/deep.py", lineno=3, line="return recurse()"),) * 5,
    Frame(func="<module>", file="/x/train.py", lineno=90),
)
BACKTRACE = Backtrace(
    pid=4242,
    source="py-spy",
    note="line numbers may be of the moment before",
    threads=(
        ThreadStack(
            thread_id=4242,
            name="MainThread",
            is_main=True,
            frames=FRAMES,
            state="S",
            cpu_s=3723.0,
            holds_gil=True,
            waiting="waiting for a condition (threading.Condition)",
            wchan="futex_do_wait",
        ),
        ThreadStack(
            thread_id=4250, name="worker\x07", is_main=False, frames=(), daemon=True, state="D"
        ),
        ThreadStack(thread_id=0, name="gone; ended", is_main=False, frames=(), alive=False),
    ),
)
WITH_LOCALS = Backtrace(
    pid=7,
    source="agent",
    threads=(
        ThreadStack(
            thread_id=7,
            name="MainThread",
            is_main=True,
            frames=(
                Frame(
                    func="Trainer.step",
                    file="/x/train.py",
                    lineno=3,
                    line="loss.backward()",
                    locals=(
                        Local(name="loss", value="Tensor() float32 cpu"),
                        Local(name="name\x1b", value="'a\nb'"),
                    ),
                ),
                Frame(func="<module>", file="/x/train.py", lineno=9, locals=()),
            ),
        ),
    ),
)

PROCESSES = (
    ProcessSummary(
        pid=4242,
        rank=0,
        state="training",
        step=1234567,
        step_age_s=0.42,
        command="python train.py --lr 3e-4 --name " + "long" * 30,
        python="3.11.9",
        listen="127.0.0.1:8080",
        folder="/dev/shm/probing-0/4242-1",
        problems=(),
        has_torch=True,
    ),
    ProcessSummary(
        pid=99,
        rank=None,
        state="dead",
        step=None,
        step_age_s=None,
        command="python x.py",
        python="3.12.1",
        listen=None,
        folder="/dev/shm/probing-0/99-1",
        problems=("no room",),
        has_torch=None,
        ended="exit code 1",
    ),
)
STRANGER = ProcessSummary(
    pid=100,
    rank=None,
    state="no agent",
    step=None,
    step_age_s=None,
    command="python other.py",
    python="",
    listen=None,
    folder=None,
    problems=(),
    has_torch=False,
    obstacle="it is stopped by a signal.",
)

WORKER = dataclasses.replace(STRANGER, pid=101, obstacle=None, role="worker", parent=4242)

TABLES = TablesAnswer(
    tables=(
        TableStatus(
            name="steps",
            kind="recorded",
            rows=16384,
            written=20000,
            overwritten=3600,
            dropped=16,
            oldest_ns=NOW_NS - 400 * 10**9,
        ),
        TableStatus(name="threads", kind="live"),
        TableStatus(name="newer_than_us", kind="recorded", problem="ring x: it is cut short."),
    )
)
SAMPLE_TABLE = Table(
    name="samples",
    doc="Readings of something that has a long description, so long that it must be wrapped at"
    " the width of the screen.",
    kind="recorded",
    columns=(
        Column(name="start_ns", type="time", unit="ns", doc="When."),
        Column(name="what", type="enum", values=("a", "b"), doc="Which."),
    ),
)

SETTINGS = (
    SettingValue(
        name="recording",
        env="PROBING_RECORDING",
        value="1",
        source="default",
        live=True,
        doc="Whether the recorded tables grow.",
    ),
    SettingValue(
        name="home", env="PROBING_HOME", value="", source="set at start", live=False, doc="Where."
    ),
)

MODELS = LiveRows(
    table="models",
    columns=(
        "model_id", "class", "wrappers", "modules", "parameters", "trainable", "trainable_share",
        "parameter_bytes", "buffers", "buffer_bytes", "dtype", "device", "training", "compiled",
    ),
    rows=(
        (0, "Net", "DDP > OptimizedModule", 5, 1_234_567_890, 1_234_567, 0.001, 4_938_271_560, 3,
         24, "bfloat16, float32", "cuda:0", True, True),
        (1, "Loss\x1b", None, 1, 0, 0, None, 0, 0, 0, None, None, True, False),
    ),
)  # fmt: skip
MODULES = LiveRows(
    table="modules",
    columns=(
        "model_id", "module", "class", "depth", "parameters", "dtype", "calls", "input_shapes",
        "output_shapes", "output_bytes", "flops", "flops_is_lower_bound", "observed_step",
    ),
    rows=(
        (0, "Net", "Net", 0, 1_234_567_890, "bfloat16, float32", 1, "ids=[8, 128]", "[8, 10]", 320,
         2_500_000_000, True, 41),
        (0, "body", "Body", 1, 1_234_567_000, "bfloat16", 1, "[8, 128]", "a|b=[8, 10]", 160,
         2_499_000_000, False, 41),
        (0, "body.first\x1b", "Linear", 2, 890, "bfloat16", 3, "[8, 128]", "[8, 10]", 160, 999,
         False, 41),
        (0, "body.act", "GELU", 2, 0, None, 1, "[8, 10]", "[8, 10]", 160, None, None, 41),
        (0, "unused", "Lazy", 1, None, "float32", None, None, None, None, None, None, None),
        (1, "Loss\x1b", "Loss\x1b", 0, 0, None, 1, "[8, 10]", "[]", 4, None, None, 41),
    ),
    note="2 of 6 modules go through torch.compile: what they do inside is unseen",
)  # fmt: skip


def _peak(batch: int) -> FitPeak:
    parts = (
        FitPart(category="activations", bytes=batch * (12 << 20)),
        FitPart(category="parameters", bytes=18 << 20),
    )
    return FitPeak(
        shape=FitShape(batch=batch, seq=128, layers=6),
        bytes=sum(part.bytes for part in parts),
        phase="loss",
        parts=parts,
    )


FIT = FitAnswer(
    model="GPT",
    device="cuda:0",
    step=1200,
    now=_peak(8),
    asked=_peak(32),
    micro_batches=4,
    blocks="blocks",
    block_class="Block",
    config_field="model.config.n_layer",
    loss="View > LogSoftmax > NllLoss",
    measured_bytes=116 << 20,
    fixed_bytes=300 << 20,
    room_bytes=16 << 30,
    room="the memory of cuda:0, less what libraries and other programs use",
    held_s=1.23,
    notes=("2 hooks of the program are left out",),
)
LARGEST = LargestFit(
    answer=FIT,
    next_batch=33,
    limit_bytes=15 << 30,
    margin=0.1,
    pairs=((32, 1), (16, 2)),
    tried=(8, 16, 32, 33),
)
SUMMARY = summary_of(MODELS, MODULES, depth=2)

RESULT = EvalResult(
    output="line one\nline two",
    value="42",
    error=None,
    error_type=None,
    omitted_bytes=0,
    duration_s=0.003,
    waited_s=0.001,
    where="safe point",
    step=120,
)

EVAL_JOBS = (
    EvalJob(
        number=3,
        who="uid 1000, pid 77",
        code="import time\ntime.sleep(60)",
        state="left behind",
        age_s=12.5,
        place="<module> (<eval>:2)",
        where="safe point",
    ),
    EvalJob(number=4, who="10.0.0.7", code="model", state="waiting", age_s=0.25),
)

SQL_ERROR = SqlError(
    "there is no table torch_trac",
    sql="SELECT *\n\tFROM torch_trac",
    position=15,
    suggestion="python.torch_trace",
)

PROFILE = Profile(
    on="device",
    start_ns=0,
    wall_ns=300_000_000,
    busy_ns=210_000_000,
    steps=(
        StepSpan(step=7, start_ns=0, duration_ns=100_000_000),
        StepSpan(step=8, start_ns=100_000_000, duration_ns=200_000_000),
    ),
    kernels=(
        Kernel(
            name="sgemm_128x64_tn|\x1b[2J",
            kind="kernel",
            category="gemm",
            calls=5,
            self_cpu_ns=None,
            self_device_ns=200_000_000,
            share=0.95,
        ),
        Kernel(
            name="autograd::engine::evaluate_function: MmBackward0",
            kind="operator",
            category="other",
            calls=2_000_000,
            self_cpu_ns=1_999,
            self_device_ns=None,
            share=1.0,
        ),
    ),
    categories=(Category(category="gemm", calls=5, time_ns=200_000_000, share=0.95),),
    modules=(
        ModuleTime(module="h.3.attn", stage="backward", calls=4, time_ns=190_000_000, share=0.9),
        ModuleTime(module=None, stage=None, calls=1, time_ns=20_000_000, share=0.1),
    ),
    gaps=(
        Gap(
            step=8,
            start_ns=150_000_000,
            duration_ns=90_000_000,
            before="Memcpy HtoD",
            after=None,
            inside="enumerate(DataLoader)",
        ),
    ),
    gap_count=1234,
    phases=(
        PhaseTime(phase="data_wait", time_ns=120_000_000, share=0.6),
        PhaseTime(phase="backward", time_ns=80_000_000, share=0.4),
    ),
)
SAMPLES = parse_folded(
    "thread (1): Main\x1b;run (/a/b/train.py:3);step (/a/b/train.py:9) 30\n"
    "thread (2): Loader;read (/usr/lib/python3.11/socket.py:1) 10\n",
    seconds=0.5,
    hz=80,
)


def _profile(width: int | None) -> str:
    head, sections = profile_head(PROFILE), profile_sections(PROFILE)
    return render_sections(head, sections, width=width, color=False)


def _samples() -> str:
    head, sections = samples_head(SAMPLES), samples_sections(SAMPLES)
    return render_sections(head, sections, width=80, color=False)


MOMENTS = (
    {
        "step": 12,
        "micro_batch": 3,
        "phase": "mark",
        "label": "before\x1b fwd",
        "device": "cuda:1",
        "allocated_bytes": 3 << 30,
        "peak_bytes": 7 << 29,
        "reserved_bytes": 4 << 30,
        "peak_reserved_bytes": 5 << 30,
        "device_used_bytes": 6 << 30,
        "resident_bytes": 123 << 20,
        "cgroup_bytes": 1 << 30,
        "cgroup_limit_bytes": 8 << 30,
        "node_used_bytes": 10 << 30,
        "node_total_bytes": 40 << 30,
        "seq": 99,
    },
    {
        "step": 0,
        "micro_batch": None,
        "phase": "attach",
        "label": None,
        "device": "cpu",
        "allocated_bytes": None,
        "peak_bytes": None,
        "reserved_bytes": None,
        "peak_reserved_bytes": None,
        "device_used_bytes": None,
        "resident_bytes": 1 << 30,
        "cgroup_bytes": None,
        "cgroup_limit_bytes": None,
        "node_used_bytes": None,
        "node_total_bytes": None,
        "seq": 1,
    },
)
CLEANED = Cleaned(
    before={**MOMENTS[0], "label": "before gc", "gc_ns": None},
    after={
        **MOMENTS[0],
        "label": "after gc",
        "allocated_bytes": 2 << 30,
        "resident_bytes": None,
        "since_bytes": 7 << 29,
        "gc_ns": 31_000_000,
    },
    garbage=1,
    notes=(),
)


MIB = 1 << 20
RECORDED = Recording(
    how="profiler",
    devices=("cpu",),
    marks=((7, 1_000_000), (8, 2_000_000), (9, 3_000_000)),
    events=(
        Event("existing", 1, 64 * MIB, 0, 0, 1_000_000, (), "head", "parameters"),
        Event("alloc", 2, 16 * MIB, 0, 0, 1_100_000, (CodeFrame("/a/train.py", 10, "mlp"),)),
        Event("alloc", 3, 512, 0, 0, 1_200_000, (CodeFrame("/a/train.py\x1b[2J", 20, "loss"),)),
        Event("free_requested", 2, 16 * MIB, 0, 0, 2_100_000, ()),
        Event("free_completed", 2, 16 * MIB, 0, 0, 2_100_000, ()),
    ),
    happened=4,
    step_s=1.5,
    plain_step_s=0.25,
)
RECORDED_LATER = dataclasses.replace(RECORDED, events=RECORDED.events[:3], happened=2)
RECORD_STATUSES = (
    RecordStatus(how="allocator", state="off"),
    RecordStatus(how="allocator", state="running", entries=100_000),
    RecordStatus(how="profiler", state="off"),
    RecordStatus(how="profiler", state="waiting", steps=10, done=0),
    RecordStatus(how="profiler", state="running", steps=10, done=1, step_s=0.1, plain_step_s=0.02),
    RecordStatus(how="profiler", state="recorded", steps=10, done=10),
    RecordStatus(how="profiler", state="refused", reason="the program runs torch.profiler itself"),
)

MEMBER = Member(
    rank=0,
    host="node1",
    pid=4242,
    world_size=3,
    job="night",
    endpoint="node1:9741",
    via="node1:9741",
    state_word="training",
    step=1204,
)
SILENT = Member(
    rank=None, host="", pid=None, world_size=None, endpoint="node2\x1b[2J:9741", state="missing"
)
MEMBERS = Membership(
    label="@hosts",
    job="night",
    world_size=3,
    members=(
        MEMBER,
        dataclasses.replace(MEMBER, rank=1, pid=4243, state_word="not answering", attempt=1),
        missing_member(2, job="night", world_size=3, attempt=1),
        SILENT,
    ),
)
TWO_JOBS = Membership(
    label="all",
    job=None,
    world_size=None,
    members=(MEMBER, dataclasses.replace(MEMBER, job="day\n", pid=99, via=None, step=None)),
)


@functools.cache
def mostly_missing() -> Membership:
    """A job of 100,000 ranks of which two are there."""
    return dataclasses.replace(
        MEMBERS,
        world_size=100_000,
        members=tuple(
            dataclasses.replace(MEMBER, rank=rank, pid=4242 + rank)
            if rank in (0, 4)
            else missing_member(rank, job="night", world_size=100_000, attempt=1)
            for rank in range(100_000)
        ),
    )


COVERAGE = Coverage(
    asked=MEMBERS.members,
    answered=(MEMBER,),
    late=(),
    dead=MEMBERS.members[1:2],
    failed=(),
    missing=MEMBERS.members[2:],
)
UNION_PLANS = (
    Plan(leaves=(), root="PIVOT python.steps ON rank USING max(loss)\x1b[2J"),
    Plan(
        leaves=(
            Leaf(
                table=TABLES_BY_NAME["steps"],
                columns=("step", "loss"),
                where="(rank < 4) AND (loss > 2)",
                tail="ORDER BY loss LIMIT 3",
                choices=("(rank < 4)",),
                reads_added=True,
            ),
        ),
        root="SELECT step FROM python.steps WHERE rank < 4 AND loss > 2 ORDER BY loss LIMIT 3",
        pushed=("conditions", "the first rows of the order"),
    ),
)

DRAWINGS: dict[str, Callable[[], str]] = {
    "table_wide": lambda: _drawn(None),
    "table_80": lambda: _drawn(80),
    "table_40": lambda: _drawn(40, more_rows=9960),
    "table_color": lambda: _drawn(80, color=True),
    "table_empty": lambda: render_table(
        [Heading(name="a"), Heading(name="n", is_number=True)], [], width=80, color=False
    ),
    "rows_json": lambda: _written("json"),
    "rows_jsonl": lambda: _written("jsonl"),
    "rows_csv": lambda: _written("csv"),
    "rows_markdown": lambda: _written("markdown"),
    "backtrace": lambda: render_backtrace(BACKTRACE),
    "backtrace_with_locals": lambda: render_backtrace(WITH_LOCALS),
    "backtrace_folded": lambda: render_folded(BACKTRACE, root=("node2:8080",)),
    "backtrace_json": lambda: json.dumps(dataclasses.asdict(WITH_LOCALS), indent=2),
    "backtrace_nothing": lambda: render_backtrace(Backtrace(pid=1, source="agent", threads=())),
    "processes_80": lambda: render_processes(PROCESSES, width=80, color=False),
    "processes_piped": lambda: render_processes(PROCESSES[1:], width=None, color=False),
    "processes_restarted": lambda: render_processes(
        (dataclasses.replace(PROCESSES[0], attempt=1, listen=None), PROCESSES[1]),
        width=80,
        color=False,
    ),
    "processes_all": lambda: render_processes(
        (*PROCESSES, STRANGER, WORKER), width=100, color=False
    ),
    "members": lambda: render_members(MEMBERS, width=80, color=False),
    "members_mostly_missing": lambda: render_members(mostly_missing(), width=80, color=False),
    "members_of_two_jobs": lambda: render_members(TWO_JOBS, width=None, color=False),
    "coverage": lambda: render_coverage(COVERAGE, moved="12 rows, 3.1 kB moved"),
    "union_plan": lambda: "\n\n".join(render_plan(plan) for plan in UNION_PLANS),
    "union_moved": lambda: "\n".join(render_moved(rows=n, size=n * 999) for n in (0, 1, 12_345)),
    "tables": lambda: render_tables(TABLES, now_ns=NOW_NS, width=80, color=False),
    "table_columns": lambda: render_columns(
        SAMPLE_TABLE, TABLES.tables[0], now_ns=NOW_NS, width=60, color=False
    ),
    "table_columns_live": lambda: render_columns(
        TABLES_BY_NAME["threads"], TABLES.tables[1], now_ns=NOW_NS, width=None, color=False
    ),
    "profile": lambda: _profile(80),
    "profile_markdown": lambda: markdown_sections(
        "Profile", profile_head(PROFILE), profile_sections(PROFILE)
    ),
    "profile_samples": _samples,
    "settings": lambda: render_settings(SETTINGS, width=80, color=False),
    "act": draw_act,
    "act_of_ranks": draw_act_of_ranks,
    "acts": draw_acts,
    "checkpoint": draw_checkpoint,
    "eval_result": lambda: render_result(RESULT),
    "eval_repeated": lambda: render_repeated(RESULT),
    "eval_jobs": lambda: render_jobs(EVAL_JOBS),
    "dataloaders": lambda: render_loaders(REPORT, width=100, color=False),
    "dataloaders_none": lambda: render_loaders(
        LoaderReport(loaders=(), stalls=()), width=80, color=False
    ),
    "leak": lambda: render_leak(KEPT_GRAPH, width=100, color=False),
    "leak_by_module": lambda: render_leak(GROWN_BY_MODULE, width=100, color=False),
    "leak_by_phase": lambda: render_leak(GROWN_BY_PHASE, width=100, color=False),
    "leak_none": lambda: render_leak(HEALTHY, width=100, color=False),
    "leak_outside": lambda: render_leak(OUTSIDE, width=100, color=False),
    "leak_failed": lambda: render_leak(FAILED, width=100, color=False),
    "labels": lambda: render_labels(LABELS, width=60),
    "labels_table": lambda: render_label_table(LABELS, width=80, color=False),
    "memory": lambda: render_memory(MEMORY_REPORT, width=120, color=False),
    "memory_markdown": lambda: memory_markdown(MEMORY_REPORT),
    "memory_nothing": lambda: render_memory(NOTHING_SEEN, width=80, color=False),
    "hang": lambda: draw_hang(100),
    "hang_early": draw_early,
    "hang_mismatch": draw_mismatch,
    "hang_several": draw_several,
    "hang_process": draw_process,
    "fit": lambda: render_fit(FIT, limit_bytes=None, width=100, color=False),
    "fit_measured": lambda: render_fit(
        dataclasses.replace(
            FIT, basis="every allocation of a recorded step", shapes=3, miss=-0.021, notes=("one",)
        ),
        limit_bytes=None,
        width=100,
        color=False,
    ),
    "fit_beyond": lambda: render_fit(FIT, limit_bytes=512 << 20, width=60, color=False),
    "fit_largest": lambda: render_largest(LARGEST, width=100, color=False),
    "summary": lambda: render_summary(SUMMARY, width=100, color=False),
    "summary_depth": lambda: render_summary(
        summary_of(MODELS, MODULES, depth=1), width=60, color=False
    ),
    "summary_markdown": lambda: summary_markdown(SUMMARY),
    "summary_json": lambda: json.dumps(
        plain_summary(summary_of(MODELS, MODULES, depth=0)), indent=2
    ),
    "summary_nothing": lambda: render_summary(
        summary_of(
            LiveRows(table="models", columns=(), rows=()),
            LiveRows(table="modules", columns=(), rows=()),
            depth=3,
        ),
        width=80,
        color=False,
    ),
    "findings": draw_findings,
    "armed": draw_armed,
    "gradients": draw_gradients,
    "memory_line": lambda: "\n".join(map(render_memory_line, (*MOMENTS, None))),
    "memory_cleaned": lambda: "\n".join(render_cleaned(CLEANED)),
    "oom": lambda: render_oom(OOM, most=2, width=80, color=False),
    "oom_nothing": lambda: render_oom(OOM_NONE, most=10, width=80, color=False),
    "recording": lambda: render_recording(RECORDED, width=100, color=False),
    "recording_status": lambda: "\n".join(map(render_status, RECORD_STATUSES)),
    "recording_difference": lambda: render_difference(
        compare(RECORDED, RECORDED_LATER), ("a.pickle", "b.pickle"), width=110, color=False
    ),
    "error": lambda: render_error(NoSuchProcess("4242\x1b[2J")),
    "error_with_place": lambda: render_error(SQL_ERROR, endpoint="node2:8080"),
    "error_color": lambda: render_error(QueryTimedOut(30.0), color=True),
    "stack_classes": lambda: render_stack_classes(merge_stacks(RANKS_SEEN, looks=3)),
    "stack_classes_color": lambda: render_stack_classes(
        merge_stacks(one_asleep(64, odd=7)), color=True
    ),
    "stack_classes_folded": lambda: render_folded_classes(merge_stacks(RANKS_SEEN)),
    "stragglers": lambda: render_stragglers(STRAGGLERS, width=110, color=False),
    "stragglers_none": lambda: render_stragglers(
        find_stragglers(ddp_job(2)), width=110, color=False
    ),
    "stragglers_nothing": lambda: render_stragglers(find_stragglers([]), width=80, color=False),
    "differences": lambda: render_differences(compare_facts(FACTS)),
    "differences_none": lambda: render_differences(compare_facts(FACTS[:2])),
    "results": lambda: render_results(fold_results(RESULTS)),
    "results_color": lambda: render_results(fold_results(RESULTS), color=True),
    "failure_of_code": lambda: render_failure("line 1: invalid syntax", excerpt="x +\n   ^"),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_is_the_golden_one(name: str) -> None:
    """A renderer gives exactly the text in its golden file."""
    assert_golden(GOLDEN / f"{name}.txt", DRAWINGS[name]())


def test_no_golden_file_is_left_over() -> None:
    """Every golden file belongs to a drawing."""
    assert {path.stem for path in GOLDEN.iterdir()} == set(DRAWINGS)


@pytest.mark.parametrize("name", [name for name in DRAWINGS if "color" not in name])
def test_nothing_drawn_can_steer_the_terminal(name: str) -> None:
    """No control character of the observed process gets through a renderer for the eye."""
    if name not in {"rows_csv", "rows_markdown"}:  # machine formats keep every byte of the data
        assert not set(DRAWINGS[name]()) & {chr(code) for code in range(32) if code != 10}


def test_amounts_are_never_powers_of_ten() -> None:
    """What rounds to a thousand of a unit is one of the next."""
    assert render_moved(rows=1, size=999_700) == "1 row, 1 MB moved"
    assert render_moved(rows=1, size=999_400) == "1 row, 999 kB moved"
