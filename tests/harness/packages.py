"""Building packages, and installing them into fresh environments."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.harness.targets import ROOT

HOOK_FILES = {"probing.pth", "probing.start"}
"""What Python reads at every start, beside the package."""
PAGES = ("tutorial", "how-to", "reference", "explanation")
"""The folders of docs whose pages are in the package, too."""


def run(*argv: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a program that must succeed and be silent on stderr; returns what it printed."""
    done = subprocess.run(
        argv, cwd=cwd, env=clean_env() | (env or {}), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clean_env() -> dict[str, str]:
    """This process's environment without what would reach into the environment under test."""
    unwanted = ("PROBING", "PYTHON", "COV", "VIRTUAL_ENV")
    return {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}


def build(hook: str, source: Path, into: Path, env: dict[str, str] | None = None) -> Path:
    """Call a hook of the build backend, as pip would; returns the file it made."""
    into.mkdir()
    code = f"import sys, build_backend; print(build_backend.{hook}(sys.argv[1]))"
    name = run(sys.executable, "-c", code, into, cwd=source, env=env).splitlines()[-1]
    return into / name


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A fresh virtual environment that holds nothing but this project.

    Attributes:
        before: What was in site-packages before.
    """

    python: Path
    site_packages: Path
    before: frozenset[str]

    def added(self) -> set[str]:
        """What the installation added at the top of site-packages, without its metadata."""
        now = {path.name for path in self.site_packages.glob("*")}
        return {name for name in now - self.before if not name.endswith(".dist-info")}

    def run(self, *options: str, env: dict[str, str] | None = None) -> str:
        """Run its Python outside of the source tree."""
        return run(self.python, *options, cwd=self.site_packages, env=env)


def install(wheel: Path, folder: Path) -> Installed:
    """Install a wheel, without its dependencies, into a fresh environment."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=ROOT)
    site_packages = next(folder.glob("lib/python*/site-packages"))
    installed = Installed(
        python=folder / "bin" / "python",
        site_packages=site_packages,
        before=frozenset(path.name for path in site_packages.iterdir()),
    )
    # Python compiles what is imported, which is a small part of it.
    options = ("--no-deps", "--no-index", "--no-compile")
    run(*pip(installed), "install", *options, wheel, cwd=ROOT)
    return installed


def pip(installed: Installed) -> tuple[str, ...]:
    """This environment's pip, working on the other one."""
    return (sys.executable, "-m", "pip", "--quiet", "--python", str(installed.python))
