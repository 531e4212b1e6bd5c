"""The table of what the training's device does as a whole.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import SEQ, START_NS, STEP
from .records import Column, Table


def _number(name: str, doc: str, unit: str | None = None) -> Column:
    """A figure that is a fraction."""
    return Column(name=name, type="float64", unit=unit, closing=True, doc=doc)


def _count(name: str, doc: str, unit: str | None = None) -> Column:
    """A figure that is whole."""
    return Column(name=name, type="int64", unit=unit, closing=True, doc=doc)


DEVICES = Table(
    name="devices",
    kind="recorded",
    doc="What NVML tells of the device that the training uses, about once a second, from a thread"
    " of the agent's own. Empty without an accelerator, and without the package nvidia-ml-py; a"
    " figure that the device does not tell, as a MIG slice tells few, is NULL.",
    columns=(
        STEP,
        Column(name="device", type="text", doc="As torch counts it in this process: `cuda:0`."),
        _number("busy", "The part of the time in which it computed anything, from 0 to 1."),
        _number("memory_busy", "The part of the time in which its memory was read or written."),
        _count("used_bytes", "In use on the whole device, by all programs.", "bytes"),
        _count("total_bytes", "What the device has.", "bytes"),
        _count(
            "own_bytes",
            "What this process has of it, as the driver sees it; NULL where that counts processes"
            " otherwise, as in some containers.",
            "bytes",
        ),
        _count("processes", "How many processes compute on it."),
        _number("power_w", "What it draws.", "W"),
        _number("power_limit_w", "What it may draw.", "W"),
        _count("sm_mhz", "The clock of its multiprocessors.", "MHz"),
        _count("memory_mhz", "The clock of its memory.", "MHz"),
        Column(
            name="throttled",
            type="text",
            closing=True,
            doc="What holds its clocks down, such as `power cap` or `hardware thermal`; several are"
            " separated by `;`. NULL where nothing does, or that is not told.",
        ),
        _count("temperature_c", "How hot it is.", "C"),
        _count(
            "ecc_errors",
            "Errors of its memory that could not be corrected, since the driver was loaded.",
        ),
        _count("remapped_rows", "Rows of its memory that such errors had replaced by spare ones."),
        _count(
            "xid",
            "The number of an error that the driver has told since the row before; NULL for none.",
        ),
        *(
            _number(
                f"{link.lower()}_{way}_bytes_per_s", f"What it has {way} by {link}{when}.", "1/s"
            )
            for link, when in (
                ("PCIe", ", over the 20 ms in which it was asked"),
                ("NVLink", ", all links together, since the row before"),
            )
            for way in ("sent", "received")
        ),
        Column(name="uuid", type="text", doc="By which the driver knows it."),
        START_NS._replace(doc="When it was asked, since the epoch."),
        SEQ,
    ),
)
