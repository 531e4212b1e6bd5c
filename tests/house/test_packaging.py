"""What an installation puts where, by each of the three ways to install."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email.message import Message
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from setuptools.config.pyprojecttoml import load_file

from probing.errors.querying import CLI_PACKAGES
from tests.harness.packages import HOOK_FILES, PAGES, Installed, build, install, pip, run
from tests.harness.targets import ROOT

PAGE_FILES = (
    *(path.name for path in (ROOT / "probing/page/src/sql").glob("*.sql")),
    *("licenses.txt", "sources.txt"),
    *("page.css", "page.js", "report.css", "report.js"),
)
OFF: tuple[dict[str, str], ...] = (
    {},
    {"PROBING": ""},
    {"PROBING": "0"},
    {"PROBING": "off"},
    {"PROBING": "OFF"},
)

pytestmark = pytest.mark.anypython


@pytest.fixture(scope="session", params=["wheel", "wheel from sdist", "editable"])
def installed(
    request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """The project installed in each of the three ways."""
    folder = tmp_path_factory.mktemp("installed")
    if request.param == "editable":
        return install(build("build_editable", source, folder / "out"), folder / "venv")
    fixture = request.param.replace(" ", "_")
    return install(request.getfixturevalue(fixture), folder / "venv")


def test_the_package_list_is_the_tree() -> None:
    """`packages` in pyproject.toml names every folder with code, and no other."""
    found = {"probing"}
    for top in ("agent", "cli"):
        for path in (ROOT / top).rglob("*.py"):
            found.add(".".join(("probing", *path.relative_to(ROOT).parts[:-1])))
    for path in (ROOT / "probing").rglob("*.py"):  # which does not follow the links in it
        found.add(".".join(path.relative_to(ROOT).parts[:-1]))
    listed = load_file(ROOT / "pyproject.toml")["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(found)


@pytest.mark.parametrize("name", ["agent", "cli"])
def test_the_links_lead_to_the_folders_beside_them(name: str) -> None:
    """`probing/agent` and `probing/cli` are relative links, so that they survive a clone."""
    link = ROOT / "probing" / name
    assert link.is_symlink()
    assert os.readlink(link) == f"../{name}"


def test_only_probing_is_importable(installed: Installed) -> None:
    """The installation adds one import name, and nothing called `agent` or `cli`."""
    names = ("probing", "probing.agent", "probing.cli", "agent", "cli")
    code = f"from importlib.util import find_spec; print([n for n in {names} if find_spec(n)])"
    assert installed.run("-c", code).strip() == "['probing', 'probing.agent', 'probing.cli']"


def test_the_hook_is_at_the_top_of_site_packages(installed: Installed) -> None:
    """Both start-up files lie where Python looks for them, beside the package or its finder."""
    others = {n for n in installed.added() if not n.startswith("__editable__")} - {"__pycache__"}
    assert others - {"probing"} == HOOK_FILES


@pytest.mark.parametrize("env", OFF, ids=str)
def test_off_imports_nothing(installed: Installed, env: dict[str, str]) -> None:
    """Unless it is switched on, no module of probing is imported at the start of Python."""
    code = (
        "import sys; print([name for name in sys.modules if name.partition('.')[0] == 'probing'])"
    )
    assert installed.run("-c", code, env=env).strip() == "[]"


def test_on_runs_the_hook(installed: Installed) -> None:
    """Switched on, every Python starts through `probing._boot`, without needing a dependency."""
    code = "import sys; print('probing._boot' in sys.modules)"
    assert installed.run("-c", code, env={"PROBING": "1"}).strip() == "True"


def test_both_hook_files_name_the_same_callable(installed: Installed) -> None:
    """The line of `probing.start` names a callable, and it is the one that `probing.pth` calls."""
    module, _, function = (ROOT / "probing.start").read_text("utf-8").strip().partition(":")
    line = (ROOT / "probing.pth").read_text("utf-8")
    assert line.count("\n") == 1
    assert f'__import__("{module}", fromlist=["{function}"]).{function}()' in line
    code = f"import {module} as module; print(callable(module.{function}))"
    assert installed.run("-c", code).strip() == "True"


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")
def test_the_c_part_is_built(installed: Installed) -> None:
    """Where there is a compiler, each way to install brings the C part of the recorder."""
    code = "from probing.ring.native import IN_C; print(IN_C.__name__)"
    assert installed.run("-c", code).strip() == "probing.ring._native"


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")
def test_the_c_part_is_compiled_without_a_warning(tmp_path: Path) -> None:
    """By the headers of this Python, as C11, with every warning an error."""
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        pytest.skip("this Python has no headers")
    sources = sorted((ROOT / "probing").rglob("*.c"))
    assert sources
    for source in sources:
        run(
            *("cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", f"-I{include}"),
            *("-c", source, "-o", tmp_path / "built.o"),
            cwd=tmp_path,
        )


@pytest.mark.slow
def test_a_machine_without_a_compiler_gets_the_rest(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel is built all the same, and the recorder is Python's."""
    monkeypatch.setenv("CC", "false")
    bare = shutil.copytree(source, tmp_path / "bare", symlinks=True)
    for junk in (*bare.glob("agent/*.so"), bare / "build"):
        shutil.rmtree(junk) if junk.is_dir() else junk.unlink(missing_ok=True)
    installed = install(build("build_wheel", bare, tmp_path / "out"), tmp_path / "venv")
    code = "from probing.ring.native import IN_C; print(IN_C)"
    assert installed.run("-c", code).strip() == "None"


def test_uninstalling_leaves_nothing(wheel: Path, tmp_path: Path) -> None:
    """The installer knows every file, those of the hook included."""
    installed = install(wheel, tmp_path / "venv")
    run(*pip(installed), "uninstall", "--yes", "probing-agent", cwd=ROOT)
    assert installed.added() == set()


@pytest.mark.slow
def test_the_wheel_holds_the_tree(wheel: Path, wheel_from_sdist: Path, source: Path) -> None:
    """Every module is in the wheel exactly once, by its installed name, from both sources."""
    expected = {"probing/py.typed", "probing/cli/render/memory/recording_page.html", *HOOK_FILES}
    expected |= {f"probing/page/static/{name}" for name in PAGE_FILES}
    pages = ("README.md", "docs/llms.txt", *(f"docs/{name}/*.md" for name in PAGES))
    found = [str(path.relative_to(source)) for one in pages for path in source.glob(one)]
    expected |= {f"probing/mcp/docs/{name.removeprefix('docs/')}" for name in found}
    for top, under in (("probing", ""), ("agent", "probing/"), ("cli", "probing/")):
        files = (source / top).rglob("*.py")  # which does not follow the links in probing
        expected |= {f"{under}{path.relative_to(source)}" for path in files}
    for built in (wheel, wheel_from_sdist):
        names = [n for n in zipfile.ZipFile(built).namelist() if ".dist-info/" not in n]
        names = [n for n in names if not n.startswith("probing/ring/_native.")]
        assert sorted(names) == sorted(expected)


def test_the_page_is_whole_and_small(wheel: Path) -> None:
    """Script and style are 250 KB at most as they travel, and bring the licenses of their parts."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(f"probing/page/static/{name}") for name in PAGE_FILES}
    assert sum(len(gzip.compress(files[name])) for name in ("page.js", "page.css")) <= 250_000
    assert not any(b"<!--" in files[name] for name in ("page.js", "report.js"))
    assert b"</script" not in files["report.js"].lower()  # it stands inside of a document
    licenses = files["licenses.txt"].decode()
    for name in ("preact", "htm", "uplot", "codemirror", "@uwdata/flechette"):
        assert f"== {name} ==" in licenses
    assert not re.search(rb"(?:src|href|url)\s*[=(]\s*[\"']?https?:", files["page.css"])


def test_without_a_registry_the_rest_is_built(source: Path, tmp_path: Path) -> None:
    """The wheel says why it has no page, and has everything else."""
    bare = shutil.copytree(source, tmp_path / "bare", symlinks=True)
    for junk in ("build", "probing/page/static"):
        shutil.rmtree(bare / junk, ignore_errors=True)
    (tmp_path / "npm").mkdir()
    for name in ("npm", "node"):
        program = tmp_path / "npm" / name
        program.write_text("#!/bin/sh\necho 'npm error network is unreachable' >&2\nexit 1\n")
        program.chmod(0o755)
    path = f"{tmp_path / 'npm'}:{os.environ['PATH']}"
    built = build("build_wheel", bare, tmp_path / "out", env={"PATH": path})
    installed = install(built, tmp_path / "venv")
    assert installed.run("-c", "import probing").strip() == ""
    with zipfile.ZipFile(built) as archive:
        names = [n for n in archive.namelist() if n.startswith("probing/page/static/")]
        assert names == ["probing/page/static/missing.txt"]
        assert b"network is unreachable" in archive.read(names[0])


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
@pytest.mark.nightly
def test_the_types_of_the_page_hold(source: Path, tmp_path: Path) -> None:
    """TypeScript's compiler finds nothing wrong in the scripts, and something once there is."""
    tree = shutil.copytree(source, tmp_path / "tree", symlinks=True)
    argv = [sys.executable, "build_backend.py", "types"]
    done = subprocess.run(argv, cwd=tree, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    with (tree / "probing/page/src/address.js").open("a") as file:
        file.write("export const wrong = linkTo(1);\n")
    done = subprocess.run(argv, cwd=tree, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "address.js" in done.stdout


def wheel_metadata(wheel: Path) -> Message:
    """The METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


def test_the_metadata_says_what_matters(wheel: Path) -> None:
    """Name, supported Python, license file and console script are in the wheel."""
    headers = wheel_metadata(wheel)
    assert (headers["Name"], headers["Requires-Python"]) == ("probing-agent", ">=3.10")
    assert (headers["License-Expression"], headers["License-File"]) == ("Apache-2.0", "LICENSE")
    with zipfile.ZipFile(wheel) as archive:
        scripts = next(n for n in archive.namelist() if n.endswith("entry_points.txt"))
        assert "probing = probing.__main__:main" in archive.read(scripts).decode()


def test_a_training_needs_one_library(wheel: Path) -> None:
    """All else that commands and SQL need comes with an extra, and is known by that."""
    needs = [Requirement(text) for text in wheel_metadata(wheel).get_all("Requires-Dist", [])]
    assert [need.name for need in needs if need.marker is None] == ["aiohttp"]
    of_cli = [need for need in needs if 'extra == "cli"' in str(need.marker)]
    assert {need.name.replace("-", "_") for need in of_cli} == CLI_PACKAGES


def test_no_extra_can_bring_torch(wheel: Path) -> None:
    """Nothing that any extra requires, followed to the end, is torch or a CUDA library."""
    seen: set[str] = set()
    waiting = [Requirement(text) for text in wheel_metadata(wheel).get_all("Requires-Dist", [])]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in seen:
            continue
        seen.add(name)
        try:
            texts = metadata.distribution(name).requires or []
        except metadata.PackageNotFoundError:
            continue  # for another Python or platform
        further = [Requirement(text) for text in texts]
        waiting += [r for r in further if r.marker is None or r.marker.evaluate({"extra": ""})]
    assert {"duckdb", "aiohttp", "pytest"} <= seen
    seen.discard("nvidia-ml-py")  # one file of Python, which asks a driver that is there
    assert not [name for name in seen if name.startswith(("torch", "nvidia", "triton"))]
