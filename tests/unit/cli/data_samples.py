"""Loaders, stalls and labels for the golden tests of what is drawn of them."""

from __future__ import annotations

from probing.diagnosis.advice import Advice
from probing.diagnosis.dataloading import Loader, LoaderReport, Stall, Worker
from probing.diagnosis.memory.out_of_memory import OomReport
from probing.messages.about.labels import LabelledSample, LabelsAnswer, TokenText
from probing.messages.common import Frame, ThreadStack
from probing.postmortem.endings import Ending

WORKERS = (
    Worker(
        worker=0,
        awaited=False,
        tasks=2,
        pid=4710,
        state="S",
        resident_bytes=240 << 20,
        cpu_s=12.3,
    ),
    Worker(
        worker=1, awaited=True, tasks=2, pid=4711, state="S", resident_bytes=3 << 30, cpu_s=725.0
    ),
    Worker(worker=2, awaited=False, tasks=0, pid=4712, state=None, resident_bytes=None, cpu_s=None),
)
STUCK = Loader(
    loader=0,
    dataset="Windows\x1b[2J",
    batches=1250,
    batch_size=8,
    num_workers=3,
    prefetch_factor=2,
    pin_memory=True,
    persistent_workers=True,
    batch=17,
    given=2517,
    mean_wait=0.0123,
    last_wait=1.5,
    waiting=True,
    waited=42.4,
    thread_id=4700,
    outstanding=4,
    workers=WORKERS,
)
EVALUATION = Loader(
    loader=1,
    dataset="Stream",
    batches=None,
    batch_size=None,
    num_workers=0,
    prefetch_factor=None,
    pin_memory=False,
    persistent_workers=False,
    batch=0,
    given=0,
    mean_wait=None,
    last_wait=None,
    waiting=True,
    waited=None,
    thread_id=4701,
    outstanding=None,
    workers=(),
)
MAIN = ThreadStack(thread_id=4700, name="MainThread", is_main=True, frames=())
OTHER = ThreadStack(thread_id=4701, name="eval", is_main=False, frames=())
IN_DATASET = ThreadStack(
    thread_id=4711,
    name="MainThread",
    is_main=True,
    waiting="sleeping",
    frames=(
        Frame(func="retry", file="/x/site-packages/net/io.py", lineno=9, line="time.sleep(60)"),
        Frame(func="Windows.__getitem__", file="/x/dataset.py", lineno=17, line="return read()"),
    ),
)
REPORT = LoaderReport(
    loaders=(STUCK, EVALUATION),
    stalls=(
        Stall(loader=STUCK, thread=MAIN, worker=WORKERS[1], stack=IN_DATASET),
        Stall(loader=STUCK, thread=MAIN, worker=WORKERS[2], stack=None),
        Stall(loader=STUCK, thread=MAIN, worker=None, stack=None),
        Stall(loader=STUCK, thread=MAIN, worker=WORKERS[1], stack=None, note="it is elsewhere"),
        Stall(loader=EVALUATION, thread=OTHER, worker=None, stack=None),
    ),
)

LABELS = LabelsAnswer(
    origin="the batch",
    inputs="input_ids: int64[3,6]",
    labels="labels: int64[3,6]",
    step=1234,
    waited_s=0.1,
    samples=3,
    read=2,
    trained=3,
    ignored=9,
    all_ignored=(1,),
    same=1.0,
    next=0.0,
    previous=0.0,
    shift="equal",
    tokenizer="Tokenizer",
    texts=(TokenText(token=7, text=" he"), TokenText(token=8, text="llo\n")),
    shown=(
        LabelledSample(
            sample=0, length=9, tokens=(1, 2, 3, 7, 8, 7), labels=(-100, -100, -100, 7, 8, 7)
        ),
        LabelledSample(sample=1, length=6, tokens=(1, 2), labels=(-100,) * 6),
    ),
)

OOM = OomReport(
    errors=2,
    oom={
        "seq": 2,
        "step": 120,
        "micro_batch": 1,
        "phase": "forward",
        "device": "cuda:1",
        "requested_bytes": 2 << 30,
        "free_bytes": 1342177280,
        "total_bytes": 79 << 30,
        "bounded_by": "device",
        "allocated_bytes": 70 << 30,
        "reserved_bytes": 77 << 30,
        "resident_bytes": 3 << 30,
        "module": "blocks.3.mlp\x1b[2J",
        "root": "GPT",
        "batch": "input_ids=[64, 2048], labels=[64, 2048]",
        "samples": 64,
        "error": "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has ...",
        "thread_id": 4700,
        "time_ns": 1_800_000_000_000_000_000,
    },
    categories=(
        {
            "category": "activations",
            "device": "cuda:1",
            "bytes": 60 << 30,
            "tensors": 1250,
            "dtype": "bfloat16",
        },
        {
            "category": "optimizer_state",
            "device": "cuda:1",
            "bytes": 8 << 30,
            "tensors": 300,
            "dtype": "float32",
        },
        {"category": "inputs", "device": "cpu", "bytes": 1 << 20, "tensors": 2, "dtype": None},
        {
            "category": "gradients",
            "device": "cuda:1",
            "bytes": None,
            "tensors": None,
            "dtype": None,
        },
    ),
    growth=tuple(
        {
            "module": f"blocks.{3 - number}.mlp",
            "stage": "forward",
            "step": 120,
            "growth_bytes": 1 << 30,
            "allocated_bytes": (70 - number) << 30,
            "age_s": 0.5 * number,
        }
        for number in range(3)
    ),
    advice=(
        Advice(rule="one", action="Do this first.", evidence="because of \x1b[31m60 GiB"),
        Advice(rule="two", action="Then do that. " * 9, evidence="because of the rest"),
    ),
    ending=Ending(
        certain=("It ended without a word.",),
        likely=("Killed by the kernel OOM killer: its cgroup reached its limit.",),
        was_killed=True,
        by_memory=True,
        by_cgroup=True,
    ),
)
OOM_NONE = OomReport(
    errors=0,
    oom=None,
    categories=(),
    growth=(),
    advice=(),
    ending=Ending(certain=("It ended without a word.",), was_killed=True),
)
