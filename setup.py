"""Puts the start-up hook at the top of site-packages, and builds the C part and the page.

Rules of this file: what setuptools cannot be told in pyproject.toml; all else is there. Python
reads `probing.pth` (and, from 3.15 on, `probing.start`) only when it lies directly in
site-packages, but data files go to the root of the environment, and in an editable install
nowhere. The two classes below mend that for a wheel, for a wheel made from the source
distribution and for an editable install alike; the installer then knows the files and removes
them with the rest. tests/house/test_packaging.py tries all three.
"""

from __future__ import annotations

import sys
from distutils.command.install_data import install_data  # setuptools brings its own distutils
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent))
import build_backend

HERE = Path(__file__).resolve().parent


class InstallBesidePackages(install_data):
    """Installs the data files where the packages go."""

    def finalize_options(self) -> None:
        """Take the folder of the packages before the inherited default applies."""
        self.set_undefined_options("install", ("install_lib", "install_dir"))
        super().finalize_options()


class DistributionWithData(Distribution):
    """A distribution whose data files an editable install does not forget."""

    def has_data(self) -> bool:
        """Answer what the editable build asks for; setuptools defines `has_data_files` only."""
        return bool(self.data_files)


class BuildWithPage(build_py):
    """Builds the page before it is asked which files there are."""

    def finalize_options(self) -> None:
        """Have the page there: what belongs to a package is looked for here."""
        build_backend.build_page()
        super().finalize_options()


PARTS = (
    *("_native", "_arrow", "_backward", "_batches", "_closing"),
    *("_cut_files", "_ends", "_exits", "_inputs", "_optimizer_rows"),
    *("_reading", "_rows", "_steps", "_terminations"),
)
IN_C = Extension(
    "probing.ring._native",
    [f"probing/ring/{name}.c" for name in PARTS],
    depends=["probing/ring/_native.h"],
    extra_compile_args=[
        *("-std=c11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden"),
        f"-fdebug-prefix-map={HERE}=.",  # the same bytes wherever it is built
    ],
    optional=True,  # where there is no compiler, Python does the same
)

setup(
    distclass=DistributionWithData,
    cmdclass={
        "build_py": BuildWithPage,
        "install_data": InstallBesidePackages,
    },
    ext_modules=[IN_C],
)
