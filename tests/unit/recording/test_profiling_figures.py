"""The figures of a profile, from traces made by hand: what counts, once, and for whom."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from probing.cli.output.formats import PROFILE_FORMATS, choose_profile_format
from probing.cli.render.profiling.chrome_trace import render_chrome_trace
from probing.cli.render.profiling.flamegraph import (
    render_flamegraph,
    render_speedscope,
    render_svg,
)
from probing.cli.render.profiling.pprof import render_pprof
from probing.cli.render.profiling.tables import profile_head, profile_sections
from probing.errors import InternalError, UsageError
from probing.profiling import (
    ModuleCall,
    Samples,
    Trace,
    frame_times,
    kernel_rows,
    parse_folded,
    read_trace,
    stacks_of,
    summarize,
)
from probing.profiling.categories import category_of
from probing.profiling.trace import _NAME
from probing.script.profile_mark import MARK
from probing.stacks import py_spy
from tests.harness.web import needs_page

pytestmark = pytest.mark.anypython

MAIN, ENGINE, STREAM = 10, 11, 7
CATEGORIES = {
    "gemm": (
        "aten::mm",
        "aten::addmm",
        "aten::bmm",
        "aten::baddbmm",
        "aten::matmul",
        "aten::linear",
        "aten::_scaled_mm",
        "aten::mv",
        "aten::dot",
        "aten::convolution_backward",
        "aten::conv2d",
        "aten::mkldnn_convolution",
        "mkldnn::_linear_pointwise",
        "ampere_sgemm_128x64_tn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
        "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_nn_align8>",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float>",
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>",
        "triton_tem_fused_addmm_relu_0",
    ),
    "attention": (
        "aten::scaled_dot_product_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_efficient_attention_forward",
        "ScaledDotProductFlashAttentionForCpuBackward0",
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64",
    ),
    "communication": (
        "record_param_comms",
        "c10d::allreduce_",
        "nccl:all_reduce",
        "gloo:all_gather",
        "_c10d_functional::all_gather_into_tensor",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ),
    "memory": (
        "aten::copy_",
        "aten::_to_copy",
        "aten::to",
        "aten::empty_strided",
        "aten::zeros",
        "aten::fill_",
        "aten::clone",
        "aten::cat",
        "Memcpy HtoD (Pinned -> Device)",
        "Memset (Device)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<float, 2, 128, 1>",
        "triton_poi_fused__to_copy_2",
        "triton_poi_fused__to_copy_clone_transpose_12",
        "triton_poi_fused_cat_0",
    ),
    "other": (
        "aten::add_",
        "aten::comm_mesh",
        "aten::layer_norm",
        "aten::gelu_backward",
        "aten::detach",
        "aten::convert_indices",
        "aten::log_softmax",
        "aten::nll_loss_forward",
        "aten::summary",
        "aten::topk",
        "autograd::engine::evaluate_function: AddBackward0",
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>",
        "triton_poi_fused_add_mul_0",
        "triton_poi_fused__to_copy_mul_silu_1",
        "triton_poi_fused_addmm_relu_0",
        "triton_poi_fused_convolution_relu_1",
        "triton_poi_fused__scaled_dot_product_efficient_attention_clone_1",
        "triton_per_fused__native_batch_norm_legit_functional_convolution_4",
        "triton_red_fused_add_bmm_mm_mul_15",
        "triton_for_fused_0",
    ),
}


@pytest.mark.parametrize(
    ("category", "name"), [(c, name) for c, names in CATEGORIES.items() for name in names]
)
def test_names_tell_the_kind_of_work(category: str, name: str) -> None:
    """Real names of operators and kernels come into the category that they belong to."""
    assert category_of(name) == category


def span(name: str, start: float, length: float, **more: Any) -> dict[str, Any]:
    """An event of a trace, in microseconds."""
    args = {key: more.pop(key) for key in ("External id", "correlation") if key in more}
    event = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": MAIN, "args": args}
    return {**event, "name": name, "ts": start, "dur": length, **more}


def mark(step: int, start: float) -> dict[str, Any]:
    """A mark, on a clock that is one millisecond behind the trace's."""
    time_ns = round((start - 1000) * 1000)
    name = MARK.format(step=step, time_ns=time_ns, ended_ns=0)
    return span(name, start, 0, cat="user_annotation")


def trace(*events: dict[str, Any], calls: tuple[ModuleCall, ...] = ()) -> Trace:
    """A trace of one step, 7, from 1000 to 2000 microseconds."""
    document = {"traceEvents": [mark(7, 1000), *events, mark(8, 2000)]}
    return read_trace(json.dumps(document).encode(), calls)


def test_no_time_is_counted_twice() -> None:
    """What an operator calls is not its own; what is the same operator again is one call."""
    profile = summarize(
        trace(
            span("aten::linear", 1000, 500),
            span("aten::addmm", 1100, 300),
            span("aten::mean", 1600, 100),
            span("aten::mean", 1610, 80),
            span("aten::early", 900, 10),
            span("aten::late", 2001, 10),
        )
    )
    own = {kernel.name: (kernel.calls, kernel.self_cpu_ns) for kernel in profile.kernels}
    assert own == {
        "aten::linear": (1, 200_000),
        "aten::addmm": (1, 300_000),
        "aten::mean": (1, 100_000),
    }
    assert (profile.wall_ns, profile.busy_ns, profile.on) == (1_000_000, 600_000, "cpu")
    assert sum(kernel.share for kernel in profile.kernels) == pytest.approx(1)


def test_gaps_say_what_is_around_them() -> None:
    """Each gap has its length, what ended before and began after, and what it was inside of."""
    profile = summarize(
        trace(
            span("aten::a", 1000, 100),
            span("aten::b", 1300, 600),
            span("enumerate(DataLoader)", 1050, 300, cat="user_annotation"),
        )
    )
    gaps = [(g.step, g.duration_ns, g.before, g.after, g.inside) for g in profile.gaps]
    assert gaps == [
        (7, 200_000, "aten::a", "aten::b", "enumerate(DataLoader)"),
        (7, 100_000, "aten::b", None, None),
    ]
    assert profile.gaps[0].start_ns == 100_000, "by the clock of the recorded tables"
    assert profile.gap_count == 2


CALLS = (
    ModuleCall("GPT", MAIN, 0, 500_000),
    ModuleCall("block.attn", MAIN, 100_000, 200_000),
)


def test_operators_go_to_the_innermost_module() -> None:
    """Clocks apart are tied by the marks; backward work goes where its forward operator was."""
    found = trace(
        span("aten::embedding", 1050, 10),
        span("aten::mm", 1150, 50),
        span("autograd::engine::evaluate_function: MmBackward0", 1600, 100, tid=ENGINE),
        span("MmBackward0", 1602, 90, tid=ENGINE),
        span("aten::mm", 1610, 50, tid=ENGINE),
        span("autograd::engine::evaluate_function: AccumulateGrad", 1710, 10, tid=ENGINE),
        span("Optimizer.step#Adam.step", 1800, 100, cat="user_annotation"),
        span("aten::add_", 1810, 50),
        span("aten::item", 1950, 10),
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 3, "tid": MAIN, "ts": 1150},
        {"ph": "f", "cat": "fwdbwd", "name": "fwdbwd", "id": 3, "tid": ENGINE, "ts": 1602},
        calls=CALLS,
    )
    assert [(op.name.rpartition(" ")[2], op.stage, op.module) for op in found.ops] == [
        ("aten::embedding", "forward", "GPT"),
        ("aten::mm", "forward", "block.attn"),
        ("aten::add_", "optimizer", "Adam"),
        ("aten::item", None, None),
        ("MmBackward0", "backward", "block.attn"),
        ("MmBackward0", "backward", "block.attn"),
        ("aten::mm", "backward", "block.attn"),
        ("AccumulateGrad", "backward", None),
    ]
    stacks = dict(stacks_of(found).stacks)
    assert stacks["backward", "block", "attn", "MmBackward0", "aten::mm"] == 50_000
    assert stacks["outside of modules", "aten::item"] == 10_000
    calls = (CALLS[0]._replace(module="blocks.1.mlp.0"), *CALLS[1:])
    inner = trace(span("aten::embedding", 1010, 50), calls=calls)
    assert ("forward", "blocks", "blocks.1", "mlp", "mlp.0", "aten::embedding") in dict(
        stacks_of(inner).stacks
    )


def test_a_device_has_the_say() -> None:
    """With kernels, shares and gaps are the accelerator's; each goes to its launcher's module."""
    profile = summarize(
        trace(
            span("aten::mm", 1150, 20, **{"External id": 5}),
            span("cudaLaunchKernel", 1155, 5, cat="cuda_runtime"),
            span("sgemm_128", 1300, 600, cat="kernel", tid=STREAM, **{"External id": 5}),
            span("Memcpy HtoD", 1350, 50, cat="gpu_memcpy", tid=STREAM + 1),
            span("of another step", 2500, 50, cat="kernel", tid=STREAM),
            calls=CALLS,
        )
    )
    assert profile.on == "device"
    assert [(c.category, c.time_ns) for c in profile.categories] == [
        ("gemm", 600_000),
        ("memory", 50_000),
    ]
    assert (profile.busy_ns, profile.gap_count) == (600_000, 2)
    assert [(m.module, m.stage, m.time_ns) for m in profile.modules] == [
        ("block.attn", "forward", 600_000),
        (None, None, 50_000),
    ]
    rows = {row[0]: row[1:6] for row in kernel_rows(profile).rows}
    assert rows["sgemm_128"] == ("kernel", "gemm", 1, None, 600_000)
    assert rows["aten::mm"] == ("operator", "gemm", 1, 20_000, None)


def test_kernels_go_to_the_module_that_launched_them() -> None:
    """By the operator that the profiler names, else by the launch of the same correlation."""
    cuda = {"cat": "cuda_runtime"}
    gpu = {"cat": "kernel", "tid": STREAM}
    profile = summarize(
        trace(
            span("aten::mm", 1150, 20, **{"External id": 5}),
            span("cudaLaunchKernel", 1155, 5, correlation=1, **cuda),
            span("cuLaunchKernel", 1250, 5, correlation=2, cat="cuda_driver"),
            span("cudaStreamIsCapturing", 1260, 5, correlation=9, **cuda),
            span("aten::add_", 1600, 10, **{"External id": 6}),
            span("cudaLaunchKernel", 1700, 5, correlation=3, **cuda),
            span("cudaGraphLaunch", 1750, 5, correlation=4, **cuda),
            span("sgemm", 1200, 100, correlation=1, **{"External id": 5}, **gpu),
            span("triton_", 1300, 40, correlation=2, **gpu),
            span("sgemm", 1800, 10, correlation=4, **gpu),
            span("sgemm", 1810, 10, correlation=4, **gpu),
            span("adam", 1830, 30, correlation=3, **gpu),
            calls=CALLS,
        )
    )
    assert [(k.module, k.stage, k.name, k.calls, k.time_ns) for k in profile.module_kernels] == [
        ("block.attn", "forward", "sgemm", 1, 100_000),
        ("block.attn", "forward", "triton_", 1, 40_000),
        (None, None, "adam", 1, 30_000),
        (None, "replay", "sgemm", 2, 20_000),
    ]
    assert profile.queues is not None
    assert (profile.queues.launches, profile.queues.delay_ns) == (4, 50_000)
    shown = "\n".join(profile_head(profile))
    assert "4 launches a step; a kernel begins 50 us after its launch, in the middle" in shown
    titles = [section.title for section in profile_sections(profile)]
    assert titles[-2:] == ["Kernels by module", "Longest gaps"]


@pytest.mark.parametrize(
    ("category", "call", "what"),
    [
        ("cuda_runtime", "cudaLaunchKernelExC", "kernel"),
        ("cuda_driver", "cuLaunchKernelEx", "kernel"),
        ("cuda_runtime", "cudaMemcpyAsync", "gpu_memcpy"),
        ("cuda_runtime", "cudaMemsetAsync", "gpu_memset"),
        ("xpu_driver", "zeCommandListAppendMemoryCopy", "gpu_memcpy"),
    ],
)
def test_a_launch_is_known_by_what_it_launched(category: str, call: str, what: str) -> None:
    """Whatever it is called, and once: of a call inside of another the outer one counts."""
    gpu = {"cat": what, "tid": STREAM}
    read = trace(
        span(call, 900, 5, correlation=1, cat=category),
        span("before the steps", 1010, 10, correlation=1, **gpu),
        span("cudaStreamSynchronize", 1020, 5, correlation=9, cat="cuda_runtime"),
        span(call, 1155, 8, correlation=2, cat=category),
        span("cuLaunchKernel", 1157, 4, correlation=2, cat="cuda_driver"),
        span("of the module", 1200, 10, correlation=2, **gpu),
        span("launched in another step", 2600, 10, correlation=1, **gpu),
        calls=CALLS,
    )
    assert [(one.name, one.module) for one in read.launches] == [(call, "block.attn")]
    assert [(kernel.name, kernel.module) for kernel in read.kernels] == [
        ("before the steps", None),
        ("of the module", "block.attn"),
    ]
    assert read.delays_ns == (110_000, 45_000)


def test_communication_that_nothing_runs_beside_is_told_apart() -> None:
    """Of two queues what ran at once, and what the device did nothing but communicate for."""
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    profile = summarize(
        trace(
            span("sgemm", 1100, 300, cat="kernel", tid=STREAM),
            span(nccl, 1300, 400, cat="kernel", tid=STREAM + 1),
            span("sgemm", 1600, 50, cat="kernel", tid=STREAM),
        )
    )
    assert nccl in {kernel.name for kernel in profile.kernels}
    cells = {cell for section in profile_sections(profile) for row in section.rows for cell in row}
    assert nccl.partition("(")[0] in cells
    assert nccl not in cells, "in no table, that of the gaps included"
    queues = profile.queues
    assert queues is not None
    assert (queues.several_ns, queues.communication_ns, queues.exposed_ns) == (
        150_000,
        400_000,
        250_000,
    )
    assert queues.delay_ns is None
    shown = "\n".join(profile_head(profile))
    assert "several things ran there at once for 15.0 %" in shown
    assert "communication took 400 us a step, of it 250 us with nothing beside it" in shown


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"traceEvents": [1]}', b'{"traceEvents": []}', b"\xff"]
)
def test_what_is_no_profile_is_an_error(data: bytes) -> None:
    """A file that cannot be read, or has no whole step, gives a sentence."""
    with pytest.raises(InternalError, match="profile"):
        read_trace(data)


@pytest.mark.parametrize("name", ['split "train"', '"', 'a, "pid": 3', 'a",', 'tab\t"'])
@pytest.mark.parametrize("between", ["\n    ", " "])
def test_a_name_with_quotation_marks_is_read(name: str, between: str) -> None:
    """Torch writes them into the trace as they are, which is no JSON."""
    lines = [
        '"ph": "X"', '"cat": "user_annotation"', f'"name": "{name}"', '"pid": 1', '"tid": 10',
        '\n    "ts": 1100', '"dur": 50',
    ]  # fmt: skip
    marks = [json.dumps(mark(step, start)) for step, start in ((7, 1000), (8, 2000))]
    note = "{" + f",{between}".join(lines) + "}"
    data = f'{{"traceEvents": [{marks[0]},\n  {note},\n  {marks[1]}]}}'
    (found,) = read_trace(data.encode()).annotations
    assert found.name == name


@pytest.mark.parametrize(("size", "is_read"), [(1000, True), (2000, False)])
def test_the_end_of_a_name_is_not_looked_for_without_a_limit(*, size: int, is_read: bool) -> None:
    """Else a damaged trace that is one long line of many names would take very long."""
    name = ('"' * 10).ljust(size, "x")
    found = _NAME.search(f'"name": "{name}", "pid": 1'.encode())
    assert (found is not None) == is_read


def test_samples_are_counted_without_ours() -> None:
    """Equal stacks add up; the agent's threads, and its frames in others, are left out."""
    text = (
        "thread (1): MainThread;main (/t.py:1);call (/x/probing/agent/s/modules.py:9);f (a:2) 3\n"
        "thread (1): MainThread;main (/t.py:1);f (a:2) 4\n"
        "thread (2): probing-agent;serve (b:1) 9\n"
        "nonsense\n"
    )
    samples = parse_folded(text, seconds=1, hz=10)
    assert samples.stacks == ((("thread (1): MainThread", "main (/t.py:1)", "f (a:2)"), 7),)
    assert [(f.frame, f.own, f.total) for f in frame_times(samples)] == [
        ("f (a:2)", 7, 7),
        ("main (/t.py:1)", 0, 7),
    ]


@needs_page
def test_the_flame_graph_needs_nothing_else() -> None:
    """The page loads nothing, and no name of a function can become a part of it."""
    text = "thread (1): M;</script><img src=x>;f 2\nthread (1): M;g 1\n"
    samples = parse_folded(text, seconds=1, hz=10)
    page = render_flamegraph(samples, title="<b>")
    assert "default-src 'none'" in page
    assert "<img" not in page
    assert "<title>&lt;b&gt;</title>" in page
    found = re.search(r'id="record">(.*)</script>', page)
    assert found is not None
    data = json.loads(found[1])["stacks"]
    assert data["weights"] == [3, 2, 2, 1]
    assert data["parents"] == [-1, 0, 1, 0]
    assert data["scale"] == 0.1


@needs_page
def test_the_flame_graph_says_which_package_a_file_is_of() -> None:
    """The folder that packages are installed in is left out; the user's own path stays."""
    text = "t;run (/v/lib/python3.11/site-packages/torch/x.py:1);a (/usr/lib/python3.11/ast.py:2);"
    samples = parse_folded(f"{text}b (/home/me/train.py:3) 1\n", seconds=1, hz=10)
    page = render_flamegraph(samples, title="x")
    for frame in ("run (torch/x.py:1)", "a (ast.py:2)", "b (/home/me/train.py:3)"):
        assert f'"{frame}"' in page


def test_the_picture_is_whole_and_in_order() -> None:
    """Well-formed SVG, nothing outside of its parent, blocks in the order of their numbers."""
    text = "t;blocks.10;f 5\nt;blocks.2;<g> 3\nt;blocks.1 1\n"
    picture = render_svg(parse_folded(text, seconds=1, hz=10), title="<b>")
    root = ET.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    boxes = [(str(g[0].text), g[1]) for g in root.iter(f"{space}g")]
    places = {name.partition(":")[0]: float(box.attrib["x"]) for name, box in boxes}
    assert places["t"] == places["blocks.1"] == 0 < places["blocks.2"] < places["blocks.10"]
    assert places["<g>"] == places["blocks.2"]
    assert "t: 900 ms, 100.0 %" in [name for name, _ in boxes]


def test_speedscope_has_seconds() -> None:
    """Weights are seconds, and every stack names frames that are there."""
    document = json.loads(
        render_speedscope(parse_folded("t;a;b 2\nt;a 1\n", seconds=1, hz=10), title="x")
    )
    profile = document["profiles"][0]
    assert profile["samples"] == [[0, 1, 2], [0, 1]]
    assert profile["weights"] == [0.2, 0.1]
    assert [frame["name"] for frame in document["shared"]["frames"]] == ["t", "a", "b"]


def test_pprof_has_samples_times_and_places() -> None:
    """Each stack is there with the innermost call first, how often, and for how long."""
    thread = "thread (42): Thread-1 (load)"
    samples = parse_folded(f"{thread};a (/x/a.py:3) 2\n", seconds=1, hz=10)
    data = gzip.decompress(render_pprof(samples))
    assert bytes.fromhex("120b 0a020102 1205 02 8084af5f") in data
    for text in (thread.encode(), b"a", b"/x/a.py", b"nanoseconds"):
        assert b"\x32" + bytes([len(text)]) + text in data


def test_pprof_has_kernels_by_their_whole_names() -> None:
    """Parentheses in the names of kernels and copies hold no place in a file."""
    names = ("void (anonymous namespace)::softmax<float>(float*)", "Memcpy HtoD (Pinned -> Device)")
    samples = Samples(unit="nanoseconds", stacks=((names, 5),), seconds=1.0)
    data = gzip.decompress(render_pprof(samples))
    for text in names:
        assert b"\x32" + bytes([len(text)]) + text.encode() in data


def test_a_picture_takes_any_name() -> None:
    """Modules may be called by digits that are no numbers, or by more than a number can have."""
    names = ("heads.9" + "9" * 5000, "heads.10", "heads.9", "heads.1²")
    stacks = tuple(((name,), 5) for name in names)
    picture = render_svg(Samples(unit="nanoseconds", stacks=stacks, seconds=1.0), title="t")
    places = [(picture.index(f"<title>{name}:"), name) for name in names]  # the last comes first
    assert [name for _, name in sorted(places)] == list(names)


def test_a_sample_says_how_long_it_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the whole seconds that py-spy takes, less where the process has ended before."""
    spy = tmp_path / "py-spy"
    spy.write_text(
        "#!/bin/sh\necho 'py-spy> Stopped sampling '$SAID\necho 'Samples: 9 Errors: 7'\n"
    )
    spy.chmod(0o700)
    monkeypatch.setattr(py_spy, "_executable", lambda: str(spy))
    how = py_spy.Record(seconds=999.5)
    monkeypatch.setenv("SAID", "in time")
    assert py_spy.record(1, how)[1:] == (7, 1000)
    monkeypatch.setenv("SAID", "because process exited")
    assert py_spy.record(1, how).seconds < 999


def test_the_chrome_trace_has_steps_and_modules() -> None:
    """Our marks become the annotations that tools know steps by; modules have their own track."""
    found = trace(span("aten::mm", 1150, 50), calls=CALLS)
    events = json.loads(render_chrome_trace(found))["traceEvents"]
    names = [event["name"] for event in events]
    assert "ProfilerStep#7" in names
    assert not any("probing step" in name for name in names)
    modules = [event for event in events if event.get("cat") == "module"]
    assert [(m["name"], m["ts"], m["dur"]) for m in modules] == [
        ("GPT", 1000, 500),
        ("block.attn", 1100, 200),
    ]


@pytest.mark.parametrize(
    ("given", "output", "form"),
    [
        (None, None, "table"),
        ("chrome", "x.html", "chrome"),
        (None, "x.json", "json"),
        (None, "x.speedscope.json", "speedscope"),
        (None, "X.HTML", "flamegraph.html"),
        (None, "trace.json", "chrome"),
        (None, "x.svg", "svg"),
        (None, "x.pb.gz", "pprof"),
    ],
)
def test_a_suffix_tells_the_format(given: str | None, output: str | None, form: str) -> None:
    """What is given counts first; of two suffixes that fit, the longer one."""
    assert choose_profile_format(given, output) == form
    assert form in PROFILE_FORMATS


def test_a_suffix_that_tells_nothing_is_refused() -> None:
    """The sentence names the formats there are."""
    with pytest.raises(UsageError, match="does not tell the format") as error:
        choose_profile_format(None, "profile")
    assert "flamegraph.html" in error.value.help
