"""What is released: the same bytes each time, accepted where it goes, and known in its parts."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from setuptools.config.pyprojecttoml import load_file

from probing._version import VERSION
from tests.harness.packages import build, run
from tests.harness.targets import DEADLINE_S, ROOT

pytestmark = [pytest.mark.nightly, pytest.mark.torch]

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RECIPE = ROOT / "scripts" / "conda-forge" / "recipe.yaml"
OF_CONDA = {"duckdb": "python-duckdb"}


def tool(module: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run one of the tools of tests/release.txt."""
    assert importlib.util.find_spec(module), f"pip install -r tests/release.txt: no {module}"
    argv = [sys.executable, "-m", module, *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def released(source: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Wheel and source distribution, each built twice: elsewhere, and of files of another time."""
    env = {"SOURCE_DATE_EPOCH": "1700000000"}
    found = []
    for name in ("one", "two"):
        folder = tmp_path_factory.mktemp(name)
        tree = shutil.copytree(source, folder / f"tree-{name}", symlinks=True)
        for path in tree.rglob("*"):
            if name == "two" and not path.is_symlink():
                os.utime(path, (1_600_000_000, 1_600_000_000))
        found += [
            build(hook, tree, folder / hook, env=env) for hook in ("build_wheel", "build_sdist")
        ]
    return found


def test_the_same_sources_make_the_same_bytes(released: list[Path]) -> None:
    """Wheel, with its C part, and source distribution, where SOURCE_DATE_EPOCH is set."""
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in released]
    assert digests[:2] == digests[2:]


def test_pypi_takes_both(released: list[Path]) -> None:
    """Metadata and README, by the tool that uploads."""
    done = tool("twine", "check", "--strict", *released[:2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The bill of materials of this environment, found valid by the official library."""
    assert importlib.util.find_spec("cyclonedx_py"), "pip install -r tests/release.txt"
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    folder = tmp_path_factory.mktemp("bill")
    for name in ("one.json", "two.json"):
        run(sys.executable, ROOT / "scripts" / "sbom.py", sys.executable, folder / name, cwd=ROOT)
    text = (folder / "one.json").read_text()
    assert (folder / "two.json").read_text() == text
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_bill_names_what_is_shipped(bill: dict[str, Any]) -> None:
    """Each library of ours, and each package whose license is in the page's script."""
    about = bill["metadata"]["component"]
    assert (about["name"], about["version"]) == ("probing-agent", VERSION)
    project = load_file(ROOT / "pyproject.toml")["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["cli"]]
    names = {one["name"].lower().replace("_", "-") for one in bill["components"]}
    asked = [Requirement(text) for text in needs]
    here = {one.name for one in asked if one.marker is None or one.marker.evaluate()}
    assert {name.replace("_", "-") for name in here} <= names
    licenses = (ROOT / "probing" / "page" / "static" / "licenses.txt").read_text()
    shipped = set(re.findall(r"^== (\S+) ==$", licenses, re.MULTILINE))
    page = {one["name"]: one for one in bill["components"] if "pkg:npm/" in one.get("purl", "")}
    assert shipped
    assert shipped == set(page)
    assert all(one["licenses"] and one["hashes"] for one in page.values())
    refs = [one["bom-ref"] for one in bill["components"]]
    assert len(refs) == len(set(refs))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_sound(workflow: Path) -> None:
    """By GitHub's schema, and by a linter for what lets others in; actions are named by a hash."""
    done = tool("check_jsonschema", "--builtin-schema", "vendor.github-workflows", workflow)
    assert done.returncode == 0, done.stdout
    zizmor = Path(sys.executable).with_name("zizmor")
    assert zizmor.exists(), "pip install -r tests/release.txt"
    done = subprocess.run([zizmor, "--offline", workflow], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    used = re.findall(r"uses: (\S+)", workflow.read_text())
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name)] == []


def test_the_recipe_of_conda_is_ours() -> None:
    """It renders, for an old Python and a new one, and needs what we need."""
    assert importlib.util.find_spec("rattler_build"), "pip install -r tests/release.txt"
    import rattler_build

    variants = rattler_build.VariantConfig(
        {"c_compiler": ["gcc"], "c_stdlib": ["sysroot"], "python": ["3.10", "3.12"]}
    )
    rendered = rattler_build.Stage0Recipe.from_file(str(RECIPE)).render(variants)
    old, new = (one.recipe.to_dict() for one in rendered)
    assert old["package"]["version"] == VERSION
    project = load_file(ROOT / "pyproject.toml")["project"]
    texts = [*project["dependencies"], *project["optional-dependencies"]["cli"]]
    wanted = {Requirement(text).name: str(Requirement(text).specifier) for text in texts}
    for one, python in ((old, "3.10"), (new, "3.12")):
        asked = dict(text.partition(" ")[::2] for text in one["requirements"]["run"])
        assert asked.pop("python") == ""
        of_ours = {
            OF_CONDA.get(name, name): sorted(versions.split(","))
            for name, versions in wanted.items()
            if name != "tomli" or python == "3.10"
        }
        assert {name: sorted(v.split(",")) for name, v in asked.items()} == of_ours
