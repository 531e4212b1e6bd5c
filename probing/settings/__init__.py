"""The settings, each declared once as a field of `Settings`.

Rules of this file: a setting's name, default, meaning and check live here; the environment
is read once, by `Settings.from_env`, from the mapping that is passed in. The frozen object is
handed down; nothing else in probing reads an environment variable to decide what to do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeVar

from ..errors import BadSetting
from ..messages.frozen import dataclass
from .values import Setting as Setting, parse

T = TypeVar("T")

OBSOLETE: dict[str, str] = {}
"""Names that once were settings, each with the sentence that says what to use now."""


def _setting(
    default: T,
    doc: str,
    *,
    env: str = "",
    live: bool = False,
    secret: bool = False,
    minimum: float = 0,
) -> T:
    """Declare one setting, whose variable is called as the field is where none is named."""
    metadata = {"env": env, "doc": doc, "live": live, "secret": secret, "minimum": minimum}
    value: T = field(default=default, repr=not secret, metadata=metadata)
    return value


@dataclass(frozen=True)
class Settings:
    """All settings of one process, as they are in force."""

    mode: str = _setting(
        "off",
        "`1` puts the agent into Python processes that import torch, `all` into those without"
        " torch, too, `0` into none. Helpers, such as workers of a DataLoader, get none.",
        env="PROBING",
    )
    disable: str = _setting(
        "",
        "`1` (anything but `0`, `off`, `false`, `no`) switches all of probing off in a"
        " process: its start, `probing.start()`, and attaching.",
    )
    home: str = _setting(
        "",
        "The run directory. Unset: `$XDG_RUNTIME_DIR/probing`, else `/dev/shm/probing-<uid>`,"
        " else `/tmp/probing-<uid>`; commands then look into all such places.",
    )
    listen: str = _setting(
        "",
        "`host:port` to listen on beside the unix socket, plus LOCAL_RANK; port 0 takes a"
        " free one. Unset: no TCP. Every TCP request needs a token.",
    )
    insecure_plaintext: bool = _setting(
        default=False,
        doc="`1` allows PROBING_LISTEN on an address that other machines reach without a"
        " certificate, and the command line to send its token there. Tokens, code and"
        " answers then cross the network unencrypted, and whoever is named gets the token.",
    )
    tls_cert: str = _setting(
        "", "A PEM file with the certificate of TCP listeners and its chain. Unset: no encryption."
    )
    tls_key: str = _setting(
        "",
        "A PEM file with its key, without a pass phrase. Unset: in the file of PROBING_TLS_CERT.",
    )
    tls_ca: str = _setting(
        "",
        "For the command line: a PEM file with trusted certificates of authorities or"
        " servers. `host:port` then means `https://host:port`. Unset: the system's"
        " authorities.",
    )
    tls_fingerprint: str = _setting(
        "",
        "For the command line: SHA-256 fingerprints, separated by commas, of the only trusted"
        " certificates. `host:port` then means `https://host:port`.",
    )
    pager: str = _setting(
        "",
        "For the command line: the pager of answers that are longer than the terminal; `cat` or"
        " nothing for none. Unset: `PAGER`, else less.",
    )
    history: str = _setting(
        "",
        "The folder, or s3://BUCKET/PREFIX, that `probing export` and `probing history` mean where"
        " none is named. A node server keeps all of its machine there, in a process of its own.",
    )
    history_every_s: float = _setting(
        600.0, "How often a node server exports to PROBING_HISTORY.", minimum=1
    )
    history_keep_days: int = _setting(0, "Days of history that a node server keeps; 0: all.")
    history_keep_mib: int = _setting(0, "How much of it a node server keeps; 0: all of it.")
    history_spool: str = _setting(
        "",
        "A folder on a disk of this machine, where what goes to an object store waits until it is"
        " there. Unset: `$XDG_STATE_HOME/probing/spool`, else `~/.local/state/probing/spool`.",
    )
    history_spool_mib: int = _setting(4096, "How much may wait there for each place.", minimum=1)
    allow_eval: bool = _setting(
        default=False,
        doc="`1` runs code that comes over TCP, and writes a checkpoint where such a request"
        " says. The unix socket may always.",
    )
    hosts: str = _setting(
        "",
        "Further names, `host:port` separated by commas, by which TCP requests may address"
        " this process.",
    )
    token: str = _setting(
        "",
        "The token of TCP requests, for agent and command line. Unset: the agent makes one,"
        " in the file `token` of its run folder. The agent takes it out of the environment.",
        secret=True,
    )
    read_token: str = _setting(
        "",
        "A token of TCP requests that may only read. Unset: the agent makes one, in the file"
        " `read_token` of its run folder.",
        secret=True,
    )
    recording: bool = _setting(default=True, doc="Whether the recorded tables grow.", live=True)
    native: bool = _setting(
        default=True,
        doc="`0` has module calls recorded by Python also where the faster C part was built.",
    )
    plugins: bool = _setting(default=True, doc="`0` loads no plugin.")
    trace_rows: int = _setting(
        262_144,
        "Rows of python.torch_trace before the oldest is overwritten; 64 bytes each.",
        minimum=64,
    )
    step_rows: int = _setting(
        16_384,
        "Rows of python.steps, python.micro_batches, python.optimizer_steps and probing.overhead;"
        " 328, 128, 80 and 80 bytes each.",
        minimum=64,
    )
    mark_rows: int = _setting(
        8_192, "Rows of python.spans and python.metrics; 48 bytes each.", minimum=64
    )
    overhead: float = _setting(
        1.0,
        "Percent of a step that recording may cost; `status` says where it costs more. Backward"
        " passes of modules are left out first, in all but one of up to 64 steps. Without the C"
        " part those of the smallest modules are, then these modules.",
    )
    batch_rows: int = _setting(16_384, "Rows of python.batches; 96 bytes each.", minimum=64)
    gradients_every: int = _setting(
        0, "Record python.gradients every N steps; 0: only on request.", live=True
    )
    gradient_rows: int = _setting(16_384, "Rows of python.gradients; 168 bytes each.", minimum=64)
    memory_rows: int = _setting(16_384, "Rows of python.memory; 184 bytes each.", minimum=64)
    sampling_hz: float = _setting(
        0.0, "How often per second python.samples notes where every thread is; 0: never.", live=True
    )
    sample_rows: int = _setting(8_192, "Rows of python.samples; 56 bytes each.", minimum=64)
    rings_mib: int = _setting(
        0,
        "What the recorded tables of a process may take together; without room they hold"
        " fewer rows. 0: 64, and no more than a tenth of what is free.",
    )
    keep_hours: float = _setting(
        168.0, "How long the record of an ended process is kept, from its last row on."
    )
    keep_mib: int = _setting(512, "How much the records of ended processes may take together.")
    query_timeout_s: float = _setting(30.0, "The time limit of a remote query.", live=True)
    query_memory_mib: int = _setting(
        512,
        "The resident memory of a helper process that runs queries of others, about 100 MiB"
        " of it libraries, 192 at least. A node server's may hold four times that. What a"
        " statement over a history may use, if that is more than 1,024.",
        live=True,
        minimum=64,
    )
    query_max_rows: int = _setting(
        1_000_000,
        "Rows of a remote answer, which is cut beyond, and says so. A larger live table is"
        " refused.",
        live=True,
    )
    query_max_bytes: int = _setting(
        64 << 20,
        "Bytes of a remote answer, which is cut beyond, and says so. A larger live table is"
        " refused.",
        live=True,
    )
    worker_idle_s: float = _setting(60.0, "How long the SQL worker process lives without a query.")
    eval_timeout_s: float = _setting(10.0, "The time limit of an eval that names none.", live=True)
    eval_max_bytes: int = _setting(1 << 20, "Bytes kept of an eval's output.", live=True)
    eval_max_running: int = _setting(
        4, "Maximum concurrent evals, pending too.", live=True, minimum=1
    )
    metrics_from: str = _setting(
        "",
        "Trackers, separated by commas, of whose scalars `python.metrics` has a copy:"
        " `tensorboard`, `wandb`, `mlflow`.",
    )
    export_metrics: str = _setting(
        "",
        "Names in python.metrics, separated by commas, whose last values a node server gives to"
        " Prometheus and OpenTelemetry: `val_loss`, `reward/*`, or `*` for all; at most 64 of a"
        " process.",
    )
    export_findings: bool = _setting(
        default=False,
        doc="`1` has a node server give Prometheus and OpenTelemetry what the doctor finds, by its"
        " name, as `probing -t all doctor --watch` does; in a process of its own.",
    )
    max_connections: int = _setting(
        64,
        "Connections at once; one more closes the one idle longest. 64 descriptors are left"
        " to the program in any case.",
        minimum=1,
    )
    max_requests: int = _setting(16, "Maximum concurrent requests.", live=True, minimum=1)
    max_requests_per_s: float = _setting(
        200.0,
        "Requests per second of one process or address; more are refused. A node server takes 2,000"
        " at least. Beyond as many of all who may not ask, these wait for their refusal.",
        live=True,
        minimum=1,
    )
    max_body_bytes: int = _setting(1 << 20, "Bytes of a request's body.", minimum=1024)
    max_sql_bytes: int = _setting(64 << 10, "Bytes of a remote statement.", live=True, minimum=64)
    max_code_bytes: int = _setting(64 << 10, "Bytes of the code of an eval.", live=True, minimum=64)
    header_timeout_s: float = _setting(
        5.0, "How long a connection without a whole request header is held.", minimum=0.5
    )
    body_timeout_s: float = _setting(
        5.0, "How long the body of a request may take to come.", live=True, minimum=0.5
    )
    send_timeout_s: float = _setting(
        8.0,
        "How long a client that takes nothing of its answer is waited for.",
        live=True,
        minimum=0.5,
    )
    job: str = _setting(
        "",
        "The job's name, as in `-t job:NAME`. Unset: torchrun's run id, SLURM's job id, Open MPI's"
        " job id, else where the ranks meet (`MASTER_ADDR:MASTER_PORT`, with `RANK` or in"
        " torch's process group).",
    )
    job_dir: str = _setting(
        "",
        "A directory shared by all machines of a job, in which node servers and agents on TCP"
        " leave their address. Nobody else may write to it.",
    )
    node: bool = _setting(
        default=False,
        doc="Whether the first agent of a machine starts a node server (`probing serve`).",
    )
    node_listen: str = _setting(
        "127.0.0.1:9741",
        "`host:port` of the node server. On an address that other machines reach it needs"
        " PROBING_TLS_CERT, or PROBING_INSECURE_PLAINTEXT=1.",
    )
    node_idle_s: float = _setting(
        300.0, "How long a node server started by an agent outlives the last process with an agent."
    )
    watch: str = _setting(
        "",
        "A webhook (http:// or https://) that a node server tells what goes wrong on its"
        " machine, as `probing -t all doctor --watch --webhook` does; in a process of its own. Its"
        " address is not shown: whoever has it can post there.",
        secret=True,
    )
    otel: bool = _setting(
        default=False,
        doc="`1` has a node server send figures and steps by OTLP; see OTEL_EXPORTER_OTLP_ENDPOINT"
        " and OpenTelemetry's other variables.",
    )
    collective_rows: int = _setting(
        16_384, "Rows of python.collectives; 136 bytes each.", minimum=64
    )

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """The settings that an environment asks for, defaults for the rest.

        Raises:
            BadSetting: A variable holds a value its setting cannot take.
        """
        given = {s.name: parse(s, env[s.env]) for s in SETTINGS if env.get(s.env)}
        return cls(**given)

    def with_value(self, name: str, text: str) -> Settings:
        """A copy with one live setting changed.

        Raises:
            BadSetting: No such setting, not one that can change while the process runs, or
                not a value it can take.
        """
        setting = find(name)
        if not setting.live:
            raise BadSetting(name, f"it is read at start only; set {setting.env} before the start")
        return dataclasses.replace(self, **{setting.name: parse(setting, text)})


def _default_of(spec: dataclasses.Field[Any]) -> Any:
    return spec.default


SETTINGS: tuple[Setting, ...] = tuple(
    [
        Setting(
            name=f.name,
            type=str(f.type),
            default=_default_of(f),
            **{**f.metadata, "env": f.metadata["env"] or f"PROBING_{f.name.upper()}"},
        )
        for f in dataclasses.fields(Settings)
    ]
)


def find(name: str) -> Setting:
    """The setting of that name, or of that environment variable.

    Raises:
        BadSetting: There is none.
    """
    if name in OBSOLETE:
        raise BadSetting(name, OBSOLETE[name])
    for setting in SETTINGS:
        if name in (setting.name, setting.env):
            return setting
    import difflib  # only after a mistake

    near = difflib.get_close_matches(name.lower(), [s.name for s in SETTINGS], n=1)
    hint = f"; the nearest is {near[0]}" if near else ""
    raise BadSetting(name, f"there is no such setting{hint}")
