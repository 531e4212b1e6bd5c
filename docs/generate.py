"""Writes the reference pages from the declarations, so that they cannot say anything else.

Rules of this file: a page is a pure function of the vocabulary (tables, settings, routes, errors,
commands, faults) and of what the tests of the faults reached; words about a thing stand where the
thing is declared, never here.

    python docs/generate.py          write the pages
    python docs/generate.py --check  exit 1 and name each page that is not what would be written
"""

from __future__ import annotations

import argparse
import collections
import re
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from command_pages import cli_page, contract_page
from http_page import http_page
from markdown_parts import anchor, bullets, first_paragraph, grid, page
from notebook_page import notebook_of

import probing.cluster.union.errors  # noqa: F401 - that all errors are in the tree
from probing.cli.render.process.catalog import sql_type
from probing.diagnosis.doctor.against import AGAINST_RULES
from probing.diagnosis.doctor.findings import CERTAINTIES, GROUPS, Rule
from probing.diagnosis.doctor.report import ALL_RULES
from probing.errors import ProbingError, error_classes
from probing.settings import SETTINGS, Setting
from probing.settings.values import number
from probing.tables import TABLES, Column

DOCS = Path(__file__).resolve().parent


_TABLES_INTRO = (
    "The schema `python` is about the job, `probing` about probing itself. A *recorded* table is a"
    " file that outlives the process and answers in any state of it. A *live* table is computed"
    " when it is asked for. `NULL` means: not measured, not known, or nothing there. A column whose"
    " name ends in `_s`, `_ns` or `_bytes` is in that unit."
)
_UNIT_ENDINGS = {"s": "_s", "ns": "_ns", "bytes": "bytes"}
_COMMON_FROM = 5  # as many tables share a column before it is explained apart from them
_RELIABILITY_INTRO = (
    "A test causes each of these faults and compares what comes of it with the promise: `sh"
    " tests/run.sh -m fault -s` (S2 and S3: `scripts/nightly`). The figures are those of"
    " `docs/reliability.json`, which `--record-faults` writes."
)
_FINDINGS_INTRO = (
    "The rules of [`probing ENDPOINT doctor`](../how-to/doctor.md), the gravest of a group first:"
    " the most that a finding can be, what it goes by, and what to do. A finding prints the command"
    " that shows more, often a query of the columns that it goes by. `--watch` judges no rule that"
    " waits for steps or takes samples: {}; of {} it judges what is on record."
)
_STATEMENT = ' query "'


def tables_page() -> str:
    """Every table and column."""
    parts = ["# Tables", _TABLES_INTRO]
    for kind in ("recorded", "live"):
        links = (f"[{t.full_name}](#{anchor(t.full_name)})" for t in TABLES if t.kind == kind)
        parts.append(f"{kind.capitalize()}: {', '.join(links)}.")
    rows = {table: [_column(c) for c in table.columns] for table in TABLES}
    places = collections.Counter(row for of_one in rows.values() for row in of_one)
    common = [row for row, tables in places.items() if tables >= _COMMON_FROM]
    first = {row: table for table in reversed(TABLES) for row in rows[table] if row not in common}
    parts += ["## Common columns", bullets(common)]
    for table in TABLES:
        parts += [f"## {table.full_name}", f"*{table.kind.capitalize()}.* {table.doc}"]
        parts.append(bullets(row for row in rows[table] if first.get(row) is table))
        for other in TABLES[: TABLES.index(table)]:
            link = f"[{other.full_name}](#{anchor(other.full_name)})"
            shared = [row for row in rows[table] if first.get(row) is other]
            parts.append(_names(f"As in {link}", shared))
        parts.append(_names("Common", [row for row in rows[table] if row in common]))
    return page(parts)


def _column(column: Column) -> tuple[str, str]:
    """A column with its type, and what it means."""
    unit = column.unit
    shown = f", {unit}" if unit and not column.name.endswith(_UNIT_ENDINGS.get(unit, " ")) else ""
    return f"`{column.name}` {sql_type(column)}{shown}", _column_doc(column)


def _names(what: str, rows: Sequence[tuple[str, ...]]) -> str:
    """Columns that another place of the page explains."""
    return f"{what}: {', '.join(row[0].split()[0] for row in rows)}." if rows else ""


def _column_doc(column: Column) -> str:
    """A column's meaning, with the values it may have and does not name itself."""
    values = [f"`{value}`" for value in column.values]
    left = [value for value in values if value not in column.doc]
    if not left:
        return column.doc
    return f"{column.doc} {'One of' if left == values else 'Also:'} {', '.join(left)}."


def settings_page() -> str:
    """Every setting."""
    intro = (
        "Settings are environment variables, read once when the process starts."
        " `probing ENDPOINT config` shows what is in force and where it comes from;"
        " `config NAME=VALUE` changes those marked *live* in the running process, by the name"
        " without `PROBING_`, in small letters. An unknown `PROBING_` variable changes nothing; the"
        " agent names it on stderr as it starts, and `status` and `config` the nearest name."
    )
    return page(["# Settings", intro, bullets((_setting(s), s.doc) for s in SETTINGS)])


def _setting(setting: Setting) -> str:
    """A setting's variable, type and default, and whether it can change."""
    other = "" if setting.env == f"PROBING_{setting.name.upper()}" else f", `{setting.name}`"
    live = ", *live*" if setting.live else ""
    limits = ""
    if setting.type in ("int", "float"):
        limits = f", {number(setting.minimum)} to {number(setting.maximum)}"
    return f"`{setting.env}` ({setting.type}, {_default(setting)}{limits}{other}{live})"


def _default(setting: Setting) -> str:
    """A setting's default as one would write it."""
    if setting.default == "":
        return "unset"
    if isinstance(setting.default, bool):
        return f"`{setting.default:d}`"
    return f"`{setting.default}`"


def errors_page() -> str:
    """Every error."""
    intro = (
        "An error is one sentence, and often a second that says what to do next. Programs go by"
        " the code, the [command line](cli.md) by the exit code, [HTTP](http.md) by the status."
        " Each line: code, class (and its parent), HTTP status, exit code."
    )
    classes = [cls for cls in error_classes() if cls is not ProbingError]
    classes.sort(key=lambda cls: [base.__name__ for base in reversed(cls.__mro__)])
    rows = (
        (f"`{c.code}` {_class_of(c)}, {c.status}, {c.exit_code}", _error_doc(c)) for c in classes
    )
    return page(["# Errors", intro, bullets(rows)])


def _class_of(cls: type[ProbingError]) -> str:
    """The class of an error, and what else catches it."""
    parent = cls.__mro__[1]
    return f"`{cls.__name__}`" if parent is ProbingError else f"`{cls.__name__}({parent.__name__})`"


def _error_doc(cls: type[ProbingError]) -> str:
    """What an error means, and what to do about it."""
    meaning = first_paragraph(cls)
    return f"{meaning} {cls.help}".strip()


def reliability_page() -> str:
    """Every fault that a test causes, and what came of it."""
    faults = runpy.run_path(str(DOCS.parent / "tests" / "faults.py"))
    rows = faults["rows"](faults["read_results"](faults["RESULTS"]))
    head = ("fault", "what is done", "what must come of it", "cases that hold", "figures (limit)")
    return page(["# Reliability, shown by attack", _RELIABILITY_INTRO, grid(head, rows)])


def findings_page() -> str:
    """Every rule of `doctor`."""
    promises = [f"- *{name}*: {promise}" for name, promise in CERTAINTIES.items()]
    intro = _FINDINGS_INTRO.format(_awaiting(on_record=False), _awaiting(on_record=True))
    parts = ["# Findings", intro, "\n".join(promises)]
    for group, title in GROUPS.items():
        of_group = (rule for rule in (*ALL_RULES, *AGAINST_RULES) if rule.group == group)
        rules = sorted(of_group, key=lambda rule: -rule.gravity)
        parts += [f"## {title}", *map(_rule_section, rules)]
    return page(parts)


def _rule_section(rule: Rule) -> str:
    """One rule."""
    command = "" if _STATEMENT in rule.next else f"`{rule.next.replace('probing ENDPOINT ', '')}`"
    more = ", ".join(filter(None, (command, f"<{rule.source}>" if rule.source else "")))
    lines = [
        rule.symptom,
        f"*{rule.certainty.capitalize()}*, by: {rule.evidence}",
        f"Fix: {rule.fix}" if rule.fix else "",
        f"More: {more}." if more else "",
    ]
    return f"### {rule.name}\n\n" + "\n".join(filter(None, lines))


def _awaiting(*, on_record: bool) -> str:
    """The rules of which `--watch` leaves out something: all, or what is not on record."""
    rules = (rule for rule in (*ALL_RULES, *AGAINST_RULES) if rule.cost_s)
    return ", ".join(sorted(f"`{r.name}`" for r in rules if bool(r.on_record) is on_record))


def llms_page() -> str:
    """The list of pages for programs that read them, in the form of llmstxt.org."""
    rooms = ("tutorial", "how-to", "reference", "explanation")
    parts = [f"# probing\n\n> {_first_sentence(DOCS / 'index.md')}"]
    for room in rooms:
        pages = sorted((DOCS / room).glob("*.md"))
        lines = (f"- [{_title(p)}]({room}/{p.name}): {_first_sentence(p)}" for p in pages)
        parts += [f"## {room}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _title(path: Path) -> str:
    """The heading of a page."""
    return path.read_text("utf-8").partition("# ")[2].partition("\n")[0]


def _first_sentence(path: Path) -> str:
    """The first sentence of a page, without its links."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    paragraphs = re.split(r"\n{2,}", text.partition("# ")[2])[1:]
    first = next(p for p in paragraphs if p[0] not in "|-#<")
    plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return re.split(r"(?<=[.?]) (?=[A-Z`*])", plain)[0].removesuffix(":").removesuffix(".") + "."


PAGES: Mapping[str, Callable[[], str]] = {
    "reference/tables.md": tables_page,
    "reference/settings.md": settings_page,
    "reference/cli.md": cli_page,
    "reference/contract.md": contract_page,
    "reference/http.md": http_page,
    "reference/errors.md": errors_page,
    "reference/findings.md": findings_page,
    "reliability.md": reliability_page,
    "how-to/notebooks.ipynb": lambda: notebook_of(
        (DOCS / "how-to" / "notebooks.md").read_text("utf-8")
    ),
    "llms.txt": llms_page,  # the last: it reads the others
}


def write(folder: Path) -> None:
    """Write every page."""
    for name, make in PAGES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(make(), "utf-8")


def stale_pages(folder: Path) -> list[Path]:
    """The pages that are missing or not what would be written."""
    stale = []
    for name, make in PAGES.items():
        path = folder / name
        if not path.exists() or path.read_text("utf-8") != make():
            stale.append(path)
    return stale


def main(argv: list[str] | None = None) -> int:
    """Write or check the pages; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, name stale pages")
    parser.add_argument("--folder", type=Path, default=DOCS, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if not options.check:
        write(options.folder)
        return 0
    stale = stale_pages(options.folder)
    for path in stale:
        print(f"{path} is stale: run `python docs/generate.py`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
