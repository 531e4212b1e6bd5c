"""The table of what the training's device does as a whole."""

from __future__ import annotations

from .columns import SEQ, START_NS, STEP
from .records import Table, closing, count, flag, number, seconds, size, text

DEVICES = Table(
    name="devices",
    kind="recorded",
    doc="What NVML tells of the training's device, about once a second, from a thread of the"
    " agent; it needs the package nvidia-ml-py.",
    columns=(
        STEP,
        text("device", "As torch counts it in this process: `cuda:0`."),
        *closing(
            number("busy", "The part of the time in which it computed anything, from 0 to 1."),
            number("memory_busy", "The part of the time in which its memory was read or written."),
            size("used_bytes", "In use on the whole device, by all programs."),
            size("total_bytes", "What the device has."),
            size(
                "own_bytes",
                "This process's share, as the driver sees it; NULL where that counts processes"
                " otherwise, as in some containers.",
            ),
            count("processes", "How many processes compute on it."),
            number("power_w", "What it draws.", unit="W"),
            number("power_limit_w", "What it may draw.", unit="W"),
            count("sm_mhz", "The clock of its multiprocessors.", unit="MHz"),
            count("memory_mhz", "The clock of its memory.", unit="MHz"),
            text(
                "throttled",
                "What holds its clocks down, such as `power cap` or `hardware thermal`, separated"
                " by `;`.",
            ),
            count("temperature_c", "How hot it is.", unit="C"),
            count("ecc_errors", "Uncorrectable errors of its memory since the driver was loaded."),
            count("remapped_rows", "Rows of its memory replaced after such errors."),
            count("xid", "The number of an error that the driver told since the previous row."),
            *(
                number(
                    f"{link.lower()}_{way}_bytes_per_s",
                    f"What it has {way} by {link}{when}.",
                    unit="1/s",
                )
                for link, when in (
                    ("PCIe", ", over the 20 ms in which it was asked"),
                    ("NVLink", ", all links together, since the row before"),
                )
                for way in ("sent", "received")
            ),
        ),
        text("uuid", "By which the driver knows it."),
        START_NS._replace(doc="When it was asked, since the epoch."),
        SEQ,
    ),
)

DEVICE_CHECKS = Table(
    name="device_checks",
    kind="live",
    doc="Whether each device in use computes, tried now beside the training: a MiB is summed in a"
    " queue of its own, in less than a second. Not tried while a graph is captured, or with less"
    " than 64 MiB free. The allocator keeps a few MiB for the next time.",
    columns=(
        text("device", "As torch counts it in this process: `cuda:0`."),
        flag(
            "ok",
            "Whether the sum was right; NULL where not known, as of a device that is kept busy.",
        ),
        seconds("duration", "How long it took, by the host's clock."),
        text("error", "What was wrong, or why nothing is known."),
    ),
)
