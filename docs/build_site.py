"""Builds the documentation as a site, with a search, that loads nothing from elsewhere.

    python -m pip install -r docs/site.txt
    python docs/build_site.py site        # site/VERSION/index.html; site/index.html leads there

Sphinx builds it, by MyST and furo: it reads these pages as they are, fails for a link that leads
nowhere, searches without a server, and all three are kept. Versions built into one folder lie
beside each other, and every page of the newest has links to them.

Rules of this file: pages stay plain Markdown that any renderer shows; what a site needs beyond
that (the tree of pages, the versions) is made here.
"""

from __future__ import annotations

import argparse
import re
import runpy
import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PARTS = {
    "Tutorial": ("tutorial/*",),
    "How to": ("how-to/*",),
    "Reference": ("reference/*",),
    "Background": ("explanation/*", "reliability", "benchmarks"),
}
"""The parts of the site, in order, and the pages of each."""
_TREE = """
```{{toctree}}
:hidden:
:caption: {caption}
:glob:

{pages}
```
"""
_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]*)[^)\s]*\)")
_MOVED = '<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}/">\n'
_STYLE = ".highlight pre { font-size: 75%; }\n"
"""Transcripts of terminals are 100 characters wide."""
_VERSIONS = """<div class="sidebar-tree"><p class="caption"><span>Versions</span></p><ul>
{links}
</ul></div>
"""


def version() -> str:
    """The version of the tree that this file is in."""
    return str(runpy.run_path(str(ROOT / "probing" / "_version.py"))["VERSION"])


def build(folder: Path) -> int:
    """Build the site of this version into a folder.

    Args:
        folder: Where the sites of all versions lie; that of this version is replaced.

    Returns:
        How many things Sphinx has warned of: a link that leads nowhere, say.
    """
    own = version()
    target = folder / own
    shutil.rmtree(target, ignore_errors=True)
    others = sorted(path.name for path in folder.glob("*/") if (path / "index.html").exists())
    with tempfile.TemporaryDirectory() as scratch:
        extras = Path(scratch) / "extras"
        extras.mkdir()
        (extras / "versions.html").write_text(_links((own, *reversed(others))), "utf-8")
        (extras / "own.css").write_text(_STYLE, "utf-8")
        app = Sphinx(
            srcdir=DOCS,
            confdir=None,
            outdir=target,
            doctreedir=Path(scratch) / "trees",
            buildername="html",
            confoverrides=_settings(own, extras),
            status=None,
            warning=sys.stderr,
        )
        app.connect("source-read", _adapt)
        app.build()
        warned: int = app._warncount  # noqa: SLF001  what its own -W goes by
    shutil.copy(DOCS / "llms.txt", target)
    (target / "llms-full.txt").write_text(in_one_file(), "utf-8")
    (folder / "index.html").write_text(_MOVED.format(own), "utf-8")
    return warned


def in_one_file() -> str:
    """All pages one after the other, each under its path, for programs that read them."""
    pages = [DOCS / "index.md"]
    for patterns in PARTS.values():
        pages += sorted(page for one in patterns for page in DOCS.glob(f"{one}.md"))
    return "\n".join(
        f"<!-- {page.relative_to(DOCS)} -->\n\n{page.read_text('utf-8')}" for page in pages
    )


def _settings(version: str, extras: Path) -> dict[str, object]:
    sidebar = ("brand", "search", "scroll-start", "navigation", "scroll-end")
    return {
        "project": "probing",
        "version": version,
        "release": version,
        "html_title": f"probing {version}",
        "html_theme": "furo",
        "html_copy_source": False,
        "html_show_sourcelink": False,
        "html_show_copyright": False,
        "extensions": ["myst_parser"],
        "root_doc": "index",
        "exclude_patterns": ["changes/*"],
        "myst_heading_anchors": 4,
        "templates_path": [str(extras)],
        "html_static_path": [str(extras / "own.css")],
        "html_css_files": ["own.css"],
        "html_sidebars": {
            "**": [*(f"sidebar/{part}.html" for part in sidebar), "versions.html"],
        },
    }


def _adapt(_: Sphinx, name: str, source: list[str]) -> None:
    """Make a page one of a site, which has the docs alone: what else it leads to is only named.

    The first page gets the tree of all others.
    """
    folder = (DOCS / name).parent

    def inside(link: re.Match[str]) -> str:
        return link[0] if (folder / link[2]).resolve().is_relative_to(DOCS) else link[1]

    source[0] = _LINK.sub(inside, source[0])
    if name == "index":
        trees = (_TREE.format(caption=c, pages="\n".join(p)) for c, p in PARTS.items())
        source[0] += "".join(trees)


def _links(versions: tuple[str, ...]) -> str:
    """The links to other versions, as each page shows them."""
    place = "{{ pathto('', resource=True) }}../"  # the folder of all versions, from any page
    one = '<li class="toctree-l1"><a class="reference" href="{0}{1}/index.html">{1}</a></li>'
    return _VERSIONS.format(links="\n".join(one.format(place, name) for name in versions))


def main(argv: list[str] | None = None) -> int:
    """Build the site; returns the exit code, 1 where a link leads nowhere."""
    parser = argparse.ArgumentParser(description="Build the documentation as a site.")
    parser.add_argument("folder", type=Path, help="where the sites of all versions lie")
    folder: Path = parser.parse_args(argv).folder
    folder.mkdir(parents=True, exist_ok=True)
    warned = build(folder)
    print(f"{folder / version() / 'index.html'}")
    return 1 if warned else 0


if __name__ == "__main__":
    raise SystemExit(main())
