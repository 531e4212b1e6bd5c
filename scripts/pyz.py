"""Makes `probing.pyz`: one file that asks processes on a machine where nothing may be installed.

    python scripts/pyz.py WHEEL FILE

It holds our wheel, and all that the command line needs, as it is installed beside this Python: what
is plain Python for every one, what is compiled for this version and this kind of machine. The same
files make the same bytes. Rules of this file: nothing is downloaded.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import re
import sys
import sysconfig
import time
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

START = Path(__file__).with_name("pyz_start.py")
MACHINE = sysconfig.get_platform().replace("-", "_")
OWN = f"cp{sys.version_info.major}{sys.version_info.minor}_{MACHINE}"
PARTS = ("any", MACHINE, OWN)
"""Where files go: what fits every Python, every one of this machine, this one alone."""
_LEFT_OUT = re.compile(
    r"(^|/)(__pycache__|tests?|include)/|\.(pyc|pyi|pxd|pyx|h|hpp|lib|a)$|/RECORD$|/direct_url.json$"
)
"""Nothing that is needed when it runs."""
_EPOCH = 315_532_800
"""1980, before which a zip file knows no time."""

Files = dict[tuple[str, str], tuple[bytes, int]]
"""By part and name: the bytes and the mode."""


def main(words: list[str]) -> None:
    """Make the file."""
    parser = argparse.ArgumentParser(description="Makes probing.pyz, one file with all it needs.")
    parser.add_argument("wheel", type=Path, help="a wheel of probing-agent for this Python")
    parser.add_argument("file", type=Path, help="what is made")
    options = parser.parse_args(words)
    files = of_wheel(options.wheel)
    for distribution in needed(options.wheel):
        files |= of_distribution(distribution)
    write(files, options.wheel.name.split("-")[1], options.file)


def of_wheel(path: Path) -> Files:
    """The files of our own wheel, but for what only an installation reads."""
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if not name.endswith("/")]
        kept = (name for name in names if not _LEFT_OUT.search(name) and "/" in name)
        return {
            (OWN if name.endswith(".so") else "any", name): (wheel.read(name), 0o644)
            for name in kept
        }


def needed(wheel: Path) -> list[importlib.metadata.Distribution]:
    """All that the command line needs, as installed here.

    Raises:
        SystemExit: Something of it is not.
    """
    with zipfile.ZipFile(wheel) as opened:
        name = next(n for n in opened.namelist() if n.endswith(".dist-info/METADATA"))
        headers = HeaderParser().parsestr(opened.read(name).decode())
    waiting = [(Requirement(text), "cli") for text in headers.get_all("Requires-Dist", [])]
    found: dict[str, importlib.metadata.Distribution] = {}
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        is_asked = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if name in found or not is_asked:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            sys.exit(f"error: {name} is not installed beside {sys.executable}.")
        waiting += [(Requirement(text), "") for text in found[name].requires or []]
    return [found[name] for name in sorted(found)]


def of_distribution(distribution: importlib.metadata.Distribution) -> Files:
    """The files of an installed distribution; programs go into `bin`."""
    part = _part_of(distribution)
    found: Files = {}
    for file in distribution.files or ():
        name = file.as_posix()
        if name.startswith("../"):  # beside site-packages: programs, and manual pages
            if PurePosixPath(name).parent.name != "bin":
                continue
            name = f"bin/{file.name}"
        path = Path(str(distribution.locate_file(file)))
        if _LEFT_OUT.search(name) or not path.is_file():
            continue
        data = path.read_bytes()
        if name.startswith("bin/") and data.startswith(b"#!"):  # of that environment's Python
            continue
        found[part, name] = data, 0o755 if name.startswith("bin/") else 0o644
    return found


def _part_of(distribution: importlib.metadata.Distribution) -> str:
    """Which part it belongs to, by the tag of its wheel."""
    tags = HeaderParser().parsestr(distribution.read_text("WHEEL") or "").get_all("Tag", [])
    plain = {"-".join(tag.split("-")[1:]) for tag in tags if tag.startswith("py")}
    if "none-any" in plain:
        return "any"
    return MACHINE if plain else OWN


def write(files: Files, version: str, path: Path) -> None:
    """Put all into one file that Python runs."""
    digest = hashlib.sha256(START.read_bytes())
    for (part, name), (data, mode) in sorted(files.items()):
        digest.update(f"{part}/{name} {mode} {hashlib.sha256(data).hexdigest()}\n".encode())
    parts = [part for part in PARTS if any(of == part for of, _ in files)]
    contents = {"name": version, "digest": digest.hexdigest()[:12], "parts": parts}
    with path.open("wb") as made:
        made.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            for name, data, mode in _entries(files, contents):
                info = zipfile.ZipInfo(name, _moment())
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = (0o100000 | mode) << 16
                archive.writestr(info, data)
    path.chmod(0o755)


def _entries(files: Files, contents: object) -> Iterator[tuple[str, bytes, int]]:
    yield "__main__.py", START.read_bytes(), 0o644
    yield "contents.json", json.dumps(contents).encode(), 0o644
    for (part, name), (data, mode) in sorted(files.items()):
        yield f"{part}/{name}", data, mode


def _moment() -> tuple[int, int, int, int, int, int]:
    """The time of all that is in it: that of the sources, where it is said."""
    seconds = max(_EPOCH, int(os.environ.get("SOURCE_DATE_EPOCH", _EPOCH)))
    year, month, day, hour, minute, second, *_ = time.gmtime(seconds)
    return year, month, day, hour, minute, second


if __name__ == "__main__":
    main(sys.argv[1:])
