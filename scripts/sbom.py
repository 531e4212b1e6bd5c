"""Writes what an installation of probing consists of, as CycloneDX has it.

    python scripts/sbom.py PYTHON FILE

The Python packages are those that are installed beside PYTHON, by the project's own tool
(`pip install cyclonedx-bom`); the scripts of the page, which are in our wheel, come from their lock
file. The same installation gives the same bytes.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VERSION = ROOT / "probing" / "_version.py"
LOCK = ROOT / "probing" / "page" / "package-lock.json"


def main(words: list[str]) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description="Writes the bill of materials of probing.")
    parser.add_argument("python", help="the Python that it is installed beside")
    parser.add_argument("file", type=Path, help="what is written, JSON")
    options = parser.parse_args(words)
    tool = [sys.executable, "-m", "cyclonedx_py", "environment", options.python]
    tool += ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"]
    tool += ["--output-reproducible", "--output-format", "JSON", "--spec-version", "1.6"]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"error: cyclonedx-py: {done.stderr.strip()}")
    bill = json.loads(done.stdout)
    bill["components"] = [*bill.get("components", []), *of_page()]
    about = bill["metadata"]["component"]
    about["version"] = re.search(r'VERSION = "(.+)"', VERSION.read_text("utf-8"))[1]  # type: ignore[index]
    root = about["bom-ref"]
    of_root = next(one for one in bill["dependencies"] if one["ref"] == root)
    of_root["dependsOn"] = [*of_root.get("dependsOn", []), *(one["bom-ref"] for one in of_page())]
    options.file.write_text(json.dumps(bill, indent=2) + "\n", "utf-8")


def of_page() -> list[dict[str, Any]]:
    """The packages whose code is in the scripts of the page."""
    lock = json.loads(LOCK.read_text("utf-8"))
    found = []
    for path, package in sorted(lock["packages"].items()):
        if not path or package.get("dev") or package.get("optional") or path.endswith("/esbuild"):
            continue
        name = path.rpartition("node_modules/")[2]
        purl = f"pkg:npm/{name.replace('@', '%40')}@{package['version']}"
        digest = base64.b64decode(package["integrity"].partition("-")[2]).hex()
        found.append(
            {
                "bom-ref": purl,
                "type": "library",
                "name": name,
                "version": package["version"],
                "purl": purl,
                "licenses": [{"license": {"id": package["license"]}}],
                "hashes": [{"alg": "SHA-512", "content": digest}],
            }
        )
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
