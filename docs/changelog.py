"""Assembles the changelog: what stands under [Unreleased], and the fragments of docs/changes.

Rules of this file: a fragment is docs/changes/NAME.TYPE.md, one bullet or more, TYPE being one of
`TYPES`; it is there so that two changes never touch the same line.

    python docs/changelog.py            print what the next release brings
    python docs/changelog.py 0.2.0      make it the section of a release, and remove the fragments
"""

from __future__ import annotations

import argparse
import datetime as dt
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TYPES = ("added", "changed", "fixed", "removed")

_UNRELEASED = re.compile(r"^## \[Unreleased\]\n(.*?)(?=^## \[|\Z)", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^### (\w+)\n(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)


def fragments(root: Path) -> dict[Path, str]:
    """The files of the fragments, and the type of each."""
    found = {}
    for path in sorted((root / "docs" / "changes").glob("*.md")):
        kind = path.suffixes[0].removeprefix(".")
        if len(path.suffixes) != len((".TYPE", ".md")) or kind not in TYPES:
            raise ValueError(f"{path.name} is not NAME.TYPE.md with one of {', '.join(TYPES)}")
        if not path.read_text("utf-8").startswith("- "):
            raise ValueError(f"{path.name} does not begin with a bullet")
        found[path] = kind
    return found


def unreleased(root: Path) -> str:
    """The sections of the next release."""
    changelog = (root / "CHANGELOG.md").read_text("utf-8")
    bullets: dict[str, list[str]] = {kind: [] for kind in TYPES}
    match = _UNRELEASED.search(changelog)
    for name, body in _SECTION.findall(match[1] if match else ""):
        bullets[name.lower()].append(body.strip())
    for path, kind in fragments(root).items():
        bullets[kind].append(path.read_text("utf-8").strip())
    texts = {kind: "\n".join(filter(None, parts)) for kind, parts in bullets.items()}
    return "\n".join(f"### {kind.capitalize()}\n\n{text}\n" for kind, text in texts.items() if text)


def release(root: Path, version: str, day: dt.date) -> None:
    """Make what is unreleased the section of a version, and remove the fragments."""
    path = root / "CHANGELOG.md"
    section = f"## [Unreleased]\n\n## [{version}] - {day.isoformat()}\n\n{unreleased(root)}\n"
    changelog = path.read_text("utf-8")
    path.write_text(_UNRELEASED.sub(lambda _: section, changelog).rstrip() + "\n", "utf-8")
    for fragment in fragments(root):
        fragment.unlink()


def main() -> None:
    """Print or release."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("version", nargs="?", help="of the release; else nothing is written")
    options = parser.parse_args()
    if options.version is None:
        print(unreleased(ROOT), end="")
    else:
        release(ROOT, options.version, dt.datetime.now(tz=dt.timezone.utc).date())


if __name__ == "__main__":
    main()
