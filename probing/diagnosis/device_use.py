"""What the device of a training does, as far as that is on record: lines for several commands.

Rules of this file: runs at the operator's side. Of a process that uses no device there is nothing
to be told, and no line. A figure that was not measured is left out; what is old says how old.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ProbingError
from ..messages.frozen import dataclass
from ..sql.quoting import in_one
from ..units import age, duration, percent, size

if TYPE_CHECKING:
    from ..client.base import Process

Row = Mapping[str, Any]

NEWEST_SAMPLE = """
    SELECT device, busy, power_w, power_limit_w, sm_mhz, throttled, temperature_c, ecc_errors,
           remapped_rows, processes, own_bytes, used_bytes,
           pcie_sent_bytes_per_s + pcie_received_bytes_per_s AS pcie_bytes_per_s,
           nvlink_sent_bytes_per_s + nvlink_received_bytes_per_s AS nvlink_bytes_per_s,
           (epoch_ns(now()) - start_ns) / 1e9 AS age_s
    FROM python.devices ORDER BY start_ns DESC LIMIT 1
"""
XIDS = """
    SELECT xid, (epoch_ns(now()) - max(start_ns)) / 1e9 AS age_s
    FROM python.devices WHERE xid IS NOT NULL GROUP BY xid ORDER BY age_s LIMIT 3
"""
_STEPS = """
    SELECT count(*) AS steps, median(duration) AS step_s, median(device_s) AS device_s,
           count(*) FILTER (host_bound) AS host_bound, count(host_bound) AS judged
    FROM (FROM python.steps WHERE device_s IS NOT NULL ORDER BY step DESC LIMIT 100)
    HAVING count(*) > 0
"""
_STAGES = """
    SELECT stage, median(share) AS share FROM (
        SELECT step, t.stage, sum(t.device_s) / any_value(s.device_s) AS share
        FROM python.device_times t JOIN python.steps s USING (step)
        WHERE (t.depth = 0 OR t.stage = 'replay') AND s.device_s > 0
        GROUP BY step, t.stage QUALIFY dense_rank() OVER (ORDER BY step DESC) <= 20)
    GROUP BY stage ORDER BY CASE stage WHEN 'forward' THEN 0 WHEN 'backward' THEN 1 ELSE 2 END
"""
_COLLECTIVES = """
    SELECT median(number) AS number, median(seconds) AS seconds, median(size) AS bytes FROM (
        SELECT step, count(*) AS number, sum(device_s) AS seconds, sum(bytes) AS size
        FROM python.collectives WHERE device_s IS NOT NULL GROUP BY step)
    HAVING count(*) > 0
"""
_REPLAYS = """
    SELECT count(*) AS replays, count(DISTINCT module) AS graphs
    FROM python.torch_trace WHERE stage = 'replay' HAVING count(*) > 0
"""
_PARTS = {
    "sample": NEWEST_SAMPLE,
    "xids": XIDS,
    "steps": _STEPS,
    "stages": _STAGES,
    "collectives": _COLLECTIVES,
    "replays": _REPLAYS,
}
DEVICE_USE = in_one(_PARTS)
_OLD_S = 10.0
_XIDS = {
    13: "a fault of a program on the device",
    31: "a page fault on the device",
    43: "the device stopped a program",
    45: "a program was cleared away after an error",
    48: "an uncorrectable memory error",
    63: "rows of memory are to be replaced",
    64: "rows of memory could not be replaced",
    74: "an error of NVLink",
    79: "the device has fallen off the bus",
    92: "many memory errors that were corrected",
    94: "a memory error that one program had",
    95: "a memory error that nothing contained",
    119: "the device's own processor does not answer",
}
"""What the driver's errors are, of those that NVIDIA lists as common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """What is on record of the device of a process.

    Attributes:
        sample: The newest row of python.devices; None where NVML tells nothing.
        xids: Errors that the driver has told, the latest first: `xid` and `age_s`.
        steps: Medians of the last steps by the device's clock; None where none was timed.
        stages: By stage the share of a step that roots take on the device, in the newest steps
            of which that was timed: a share, as such a step takes longer than others.
        collectives: What those take in a step that are waited for at once, the same way.
        replays: How many replays of CUDA graphs are on record.
    """

    sample: Row | None
    xids: tuple[Row, ...]
    steps: Row | None
    stages: Mapping[str, float]
    collectives: Row | None
    replays: Row | None

    def lines(self) -> Iterator[str]:
        """All that is known, a line for each kind."""
        if self.sample is not None:
            yield sample_words(self.sample)
        yield from self.step_lines()
        yield from xid_lines(self.xids)

    def step_lines(self) -> Iterator[str]:
        """What a step takes on the device."""
        yield from _steps(self)
        yield from _collectives(self)
        yield from _replays(self)

    def holders(self) -> str | None:
        """Who has memory of the device, and what is wrong with that; None where it is not told."""
        row = self.sample
        if row is None:
            return None
        words = []
        if row["processes"]:
            number, own, used = row["processes"], row["own_bytes"], row["used_bytes"]
            text = f"{number} process{'' if number == 1 else 'es'} on it"
            if own is not None:
                text += f", this one with {size(own)}"
                if number > 1 and used is not None and used > own:
                    text += f", the others and the driver with {size(used - own)}"
            words.append(text)
        words += _damage(row)
        return "; ".join(words) or None


def device_use(process: Process) -> DeviceUse | None:
    """What is on record of a process's device; None where it uses none, or its record is older."""
    try:
        rows = process.query(DEVICE_USE).to_pylist()
    except ProbingError:
        return None
    return use_of(rows)


def use_of(rows: Sequence[Row]) -> DeviceUse | None:
    """The answer to `DEVICE_USE`; None where no device is in use."""
    found = {name: (rows[0].get(name) or []) if rows else [] for name in _PARTS}
    if not (found["sample"] or found["steps"] or found["replays"]):
        return None
    return DeviceUse(
        sample=next(iter(found["sample"]), None),
        xids=tuple(found["xids"]),
        steps=next(iter(found["steps"]), None),
        stages={row["stage"]: row["share"] for row in found["stages"]},
        collectives=next(iter(found["collectives"]), None),
        replays=next(iter(found["replays"]), None),
    )


def sample_words(row: Row) -> str:
    """What a device did when it was looked at last."""
    words = []
    if row["busy"] is not None:
        words.append(f"{100 * row['busy']:.0f} % busy")
    if row["power_w"] is not None:
        limit = "" if row["power_limit_w"] is None else f" of {row['power_limit_w']:.0f}"
        words.append(f"{row['power_w']:.0f}{limit} W")
    if row["sm_mhz"] is not None:
        words.append(f"{row['sm_mhz']:,} MHz")
    if row["temperature_c"] is not None:
        words.append(f"{row['temperature_c']} C")
    if row["throttled"]:
        words.append(f"clocks held down by {row['throttled'].replace(';', ', ')}")
    for name in ("PCIe", "NVLink"):
        rate = row.get(f"{name.lower()}_bytes_per_s")
        if rate is not None:
            words.append(f"{name} {size(rate)}/s")
    words += _damage(row)
    ago = f", {age(row['age_s'])} ago" if row["age_s"] > _OLD_S else ""
    return f"device {row['device']}: {', '.join(words) or 'tells nothing of itself'}{ago}"


def xid_lines(rows: Sequence[Row]) -> Iterator[str]:
    """What the driver has told of errors."""
    for row in rows:
        known = _XIDS.get(row["xid"])
        words = f" ({known})" if known else ""
        yield f"the driver told of error XID {row['xid']}{words} {age(row['age_s'])} ago"


def _damage(row: Row) -> Iterator[str]:
    """Memory errors, where there are any."""
    if row["ecc_errors"]:
        yield f"{row['ecc_errors']:,} uncorrectable memory errors since the driver was loaded"
    if row["remapped_rows"]:
        yield f"{row['remapped_rows']:,} rows of its memory replaced"


def _steps(use: DeviceUse) -> Iterator[str]:
    row = use.steps
    if row is None:
        return
    parts = [f"{name} {percent(part)}" for name, part in use.stages.items() if name != "replay"]
    of_it = f" ({', '.join(parts)})" if parts else ""
    bound = ""
    if row["judged"]:
        bound = f"; host-bound: {row['host_bound']} of the last {row['judged']}"
    yield f"a step takes {duration(row['device_s'])} on the device{of_it}{bound}"


def _collectives(use: DeviceUse) -> Iterator[str]:
    row = use.collectives
    if row is None:
        return
    rate = f", at least {size(row['bytes'] / row['seconds'])}/s" if row["seconds"] else ""
    number = round(row["number"])
    yield (
        f"{number} collective{'' if number == 1 else 's'} of it take{'s' if number == 1 else ''}"
        f" {duration(row['seconds'])} there, waiting for other ranks included: {size(row['bytes'])}"
        f"{rate}"
    )


def _replays(use: DeviceUse) -> Iterator[str]:
    row = use.replays
    if row is None:
        return
    part = use.stages.get("replay")
    each = "" if part is None else f", {percent(part)} of a step"
    yield (
        f"{row['replays']:,} replay{'' if row['replays'] == 1 else 's'} of"
        f" {row['graphs']} CUDA graph{'' if row['graphs'] == 1 else 's'} on record{each}"
    )
