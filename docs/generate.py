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
import dataclasses
import re
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from markdown_parts import anchor, docstring, first_paragraph, first_sentence, grid, page, prose

import probing.cluster.union.errors  # noqa: F401 - that all errors are in the tree
from probing.cli.command import examples_of, usage_path
from probing.cli.group import TASKS, probing as cli
from probing.cli.render.process.catalog import sql_type
from probing.diagnosis.doctor.against import AGAINST_RULES
from probing.diagnosis.doctor.examine import ALL_RULES
from probing.diagnosis.doctor.findings import CERTAINTIES, GROUPS, Rule
from probing.errors import ProbingError, error_classes
from probing.messages import (
    act as act_wire,
    allocation as allocation_wire,
    common as wire,
    eval as eval_wire,
    job as job_wire,
    labels as labels_wire,
    union as union_wire,
)
from probing.messages.routes import NODE_ROUTES, ROUTES, Route, openapi
from probing.settings import SETTINGS, Setting
from probing.tables import TABLES, Column

DOCS = Path(__file__).resolve().parent


_TABLES_INTRO = (
    "The tables about the job are in the schema `python`, those about probing itself in `probing`."
    " A *recorded* table is kept in a file that outlives the process, so it answers whatever state"
    " the process is in. A *live* table is computed when it is asked for. `NULL` means: not"
    " measured."
)
_COMMON_FROM = 5  # as many tables share a column before it is explained apart from them
_COMMON_INTRO = "Each table names which of these it has."
_TARGET_OPTIONS = 8  # the first of those of `probing`: whom to ask, and how
_CLI_COMMON = "Every command but {} takes these, too, before or behind its name; each takes `-h`."
_CLI_SHARED = "Options of several commands, each of which names those that it has:"
_HTTP_INTRO = (
    "The agent serves these on its unix socket and, when asked to, on TCP (then with the token in"
    " `Authorization: Bearer TOKEN`). Bodies are JSON; the rows of a query travel as an Arrow IPC"
    " stream. A GET changes nothing. `GET /v1/openapi.json` says the same to programs."
)
_BODIES_INTRO = "A `?` after a member: it may be left out. A `?` after its type: it may be null."
_HTTP_ERRORS = (
    'An error has the same body on every route: `{"error": {"code", "status", "exit_code",'
    ' "message", "help", "detail"}}`. The codes are listed in [Errors](errors.md).'
)
_RELIABILITY_INTRO = (
    "Every fault of this list is caused on purpose by a test, and what comes of it is compared with"
    " the promise. `sh tests/run.sh -m fault -s` does it, and prints a line for each case: the"
    " fault, what is expected, what was got. The figures are those of the run that is kept in"
    " `docs/reliability.json`; `--record-faults` writes it anew. All but S2 and S3, which"
    " are `scripts/nightly`'s, take some minutes."
)
_FINDINGS_INTRO = (
    "What [`probing ENDPOINT doctor`](../how-to/doctor.md) looks for: each rule with its"
    " thresholds, what to do, and the command that shows more. The gravest of a group comes first."
)
_WHICH_ERROR = "Which error leaves with which code: [Errors](errors.md)."


def tables_page() -> str:
    """Every table and column."""
    parts = [
        "# Tables",
        _TABLES_INTRO,
        grid(
            ("table", "kind", "meaning"),
            (
                (f"[`{t.full_name}`](#{anchor(t.full_name)})", t.kind, first_sentence(t.doc))
                for t in TABLES
            ),
        ),
    ]
    rows = {table: [_column(c) for c in table.columns] for table in TABLES}
    places = collections.Counter(row for of_one in rows.values() for row in of_one)
    common = [row for row, tables in places.items() if tables >= _COMMON_FROM]
    first = {row: table for table in reversed(TABLES) for row in rows[table] if row not in common}
    parts += ["## Common columns", _COMMON_INTRO, _columns(common)]
    for table in TABLES:
        parts += [f"## {table.full_name}", f"*{table.kind.capitalize()}.* {table.doc}"]
        parts.append(_columns([row for row in rows[table] if first.get(row) is table]))
        for other in TABLES[: TABLES.index(table)]:
            link = f"[`{other.full_name}`](#{anchor(other.full_name)})"
            shared = [row for row in rows[table] if first.get(row) is other]
            parts.append(_names(f"As in {link}", shared))
        parts.append(_names("Common", [row for row in rows[table] if row in common]))
    return page(parts)


def _column(column: Column) -> tuple[str, ...]:
    """A column and what it means."""
    kind = sql_type(column)
    return (
        f"`{column.name}`",
        f"{kind}, {column.unit}" if column.unit else kind,
        _column_doc(column),
    )


def _columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns and what they mean, if there are any."""
    return grid(("column", "type", "meaning"), rows) if rows else ""


def _names(what: str, rows: Sequence[tuple[str, ...]]) -> str:
    """Columns that another place of the page explains."""
    return f"{what}: {', '.join(row[0] for row in rows)}." if rows else ""


def _column_doc(column: Column) -> str:
    """A column's meaning, with the values it may have unless it names them itself."""
    if all(f"`{value}`" in column.doc for value in column.values):
        return column.doc
    return f"{column.doc} One of {', '.join(f'`{value}`' for value in column.values)}."


def settings_page() -> str:
    """Every setting."""
    intro = (
        "Settings are environment variables, read once when the process starts."
        " `probing ENDPOINT config` shows what is in force and where it comes from;"
        " `probing ENDPOINT config NAME=VALUE` changes those marked *live* in the running process."
        " A variable whose name begins with `PROBING_` and is none of these changes nothing; the"
        " agent says so on stderr at its start, and `status` and `config` do, with the nearest"
        " name."
    )
    rows = (
        (
            f"`{s.env}`",
            f"`{s.name}`",
            s.type,
            _default(s),
            "yes" if s.live else "no",
            s.doc,
        )
        for s in SETTINGS
    )
    head = ("variable", "name", "type", "default", "live", "meaning")
    return page(["# Settings", intro, grid(head, rows)])


def _default(setting: Setting) -> str:
    """A setting's default as one would write it."""
    if setting.default == "":
        return "unset"
    if isinstance(setting.default, bool):
        return f"`{setting.default:d}`"
    return f"`{setting.default}`"


def cli_page() -> str:
    """Every command and option."""
    contexts = list(_contexts())
    used = collections.Counter(row for context in contexts for row in _options(context))
    everywhere = _options(contexts[0])
    common = [row for row in used if used[row] >= _COMMON_FROM and row not in everywhere]
    parts = ["# Command line", prose(cli.help), _usage(contexts[0])]
    parts += [prose(cli.epilog), _tasks(), grid(("option", "meaning"), everywhere)]
    target_options = {*everywhere[:_TARGET_OPTIONS]}
    without = [c.command_path for c in contexts if not target_options <= {*_options(c)}]
    parts += [_CLI_COMMON.format(", ".join(f"`{path}`" for path in without)), _CLI_SHARED]
    parts.append(grid(("option", "meaning"), common))
    for context in contexts[1:]:
        depth = "##" if context.parent is contexts[0] else "###"
        parts += [f"{depth} {context.command_path}", prose(context.command.help), _usage(context)]
        rows = _options(context)
        own = [row for row in rows if row not in everywhere and row not in common]
        parts += [grid(("option", "meaning"), own)] if own else []
        examples = "\n".join(examples_of(context))
        parts += [f"```text\n{examples}\n```"] if examples else []
        shared = ", ".join(row[0] for row in rows if row in common)
        parts += [f"Common: {shared}."] if shared else []
    return page([*parts, _WHICH_ERROR])


def _tasks() -> str:
    """The commands by what they are for."""
    links = (
        (task, ", ".join(f"[`{name}`](#{anchor(f'probing {name}')})" for name in commands))
        for task, commands in TASKS.items()
    )
    return grid(("what for", "commands"), links)


def _contexts(parent: click.Context | None = None) -> Iterator[click.Context]:
    """A command's context, then those of the commands in it; at first that of `probing`."""
    context = parent or click.Context(
        cli, info_name="probing", resilient_parsing=True, **cli.context_settings
    )
    yield context
    if not isinstance(context.command, click.Group):
        return
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        assert command is not None
        yield from _contexts(
            click.Context(command, info_name=name, parent=context, resilient_parsing=True)
        )


def _usage(context: click.Context) -> str:
    """The usage line."""
    words = (usage_path(context), *context.command.collect_usage_pieces(context))
    return f"```text\n{' '.join(words)}\n```"


def _options(context: click.Context) -> list[tuple[str, str]]:
    """The options and their meanings."""
    records = [p.get_help_record(context) for p in context.command.get_params(context)]
    return [(f"`{shown}`", prose(meaning)) for shown, meaning in filter(None, records) if meaning]


def http_page() -> str:
    """Every route and body."""
    schemas: dict[str, Any] = openapi("", (*ROUTES, *NODE_ROUTES))["components"]["schemas"]
    parts = [
        "# HTTP",
        _HTTP_INTRO,
        _HTTP_ERRORS,
        "## Routes",
        grid(
            ("route", "request", "answer", "meaning"),
            (
                (f"`{r.method} {r.path}`", _body(r.request), _answer(r), r.doc)
                for r in (*ROUTES, *NODE_ROUTES)
            ),
        ),
        "## Bodies",
        _BODIES_INTRO,
    ]
    for name in sorted(set(schemas) - {"Error"}):
        parts += _body_section(_wire_class(name), schemas[name])
    return page(parts)


def _wire_class(name: str) -> type[Any]:
    """The class of a body."""
    modules = (
        wire,
        allocation_wire,
        act_wire,
        eval_wire,
        job_wire,
        labels_wire,
        union_wire,
    )
    found: type[Any] = next(getattr(module, name) for module in modules if hasattr(module, name))
    return found


def _body(cls: type[Any] | None) -> str:
    """A link to a body's section."""
    return f"[{cls.__name__}](#{anchor(cls.__name__)})" if cls is not None else ""


def _answer(route: Route) -> str:
    """What comes back."""
    if isinstance(route.answer, str):
        return {
            "arrow": f"`{wire.ARROW_TYPE}`",
            "document": "OpenAPI 3.1",
            "trace": f"`{wire.TRACE_TYPE}`",
            "allocations": f"`{wire.TRACE_TYPE}`",
            "results": f"lines of {_body(wire.EvalResult)}",
        }[route.answer]
    return _body(route.answer)


def _body_section(cls: type[Any], schema: dict[str, Any]) -> list[str]:
    """One body: what it is, and its members."""
    meanings = _attribute_docs(cls)
    lines = []
    for name, member in schema["properties"].items():
        mark = "" if name in schema["required"] else "?"
        meaning = f": {meanings[name]}" if name in meanings else ""
        lines.append(f"- `{name}{mark}`, {_json_type(member)}{meaning}")
    return [f"### {cls.__name__}", first_paragraph(cls), "\n".join(lines)]


def _json_type(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{anchor(name)})"
    if "anyOf" in schema:
        types = [_json_type(member) for member in schema["anyOf"]]
        is_nullable = "null" in types
        return " or ".join(name for name in types if name != "null") + "?" * is_nullable
    if schema["type"] == "array":
        return f"list of {_json_type(schema['items'])}"
    return str(schema["type"])


def _attribute_docs(cls: type[Any]) -> dict[str, str]:
    """What the docstring of a class says about its attributes."""
    _, _, section = docstring(cls).partition("Attributes:\n")
    names = [field.name for field in dataclasses.fields(cls)]
    found = re.split(r"^ {4}(\w+): ", section, flags=re.MULTILINE)[1:]
    texts = (re.sub(r"\bNone\b", "null", " ".join(text.split())) for text in found[1::2])
    docs = dict(zip(found[::2], (text.replace("``", "`") for text in texts), strict=True))
    if unknown := sorted(set(docs) - set(names)):
        raise LookupError(f"{cls.__name__} describes {unknown[0]}, which it does not have")
    return docs


def errors_page() -> str:
    """Every error."""
    intro = (
        "Every error is one sentence, and where there is one, a second that says what to do next."
        " Programs go by the code; the [command line](cli.md) leaves with the exit code;"
        " over [HTTP](http.md) the error travels by the status."
    )
    classes = [cls for cls in error_classes() if cls is not ProbingError]
    classes.sort(key=lambda cls: [base.__name__ for base in reversed(cls.__mro__)])
    rows = (
        (f"`{c.code}`", _class_of(c), str(c.status), str(c.exit_code), _error_doc(c))
        for c in classes
    )
    return page(["# Errors", intro, grid(("code", "class", "HTTP", "exit", "meaning"), rows)])


def _class_of(cls: type[ProbingError]) -> str:
    """The class of an error, and what else catches it."""
    parent = cls.__mro__[1]
    return f"`{cls.__name__}`" + ("" if parent is ProbingError else f", a `{parent.__name__}`")


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
    parts = ["# Findings", _FINDINGS_INTRO, "\n".join(promises)]
    for group, title in GROUPS.items():
        of_group = (rule for rule in (*ALL_RULES, *AGAINST_RULES) if rule.group == group)
        rules = sorted(of_group, key=lambda rule: -rule.gravity)
        parts += [f"## {title}", *map(_rule_section, rules)]
    return page(parts)


def _rule_section(rule: Rule) -> str:
    """One rule."""
    lines = [
        rule.symptom,
        f"- Looked at: {rule.evidence}",
        f"- At most *{rule.certainty}*.",
        *((f"- Fix: {rule.fix}",) if rule.fix else ()),
        f"- More: `{rule.next}`",
        *((f"- Source: <{rule.source}>",) if rule.source else ()),
    ]
    return "\n".join([f"### {rule.name}", "", lines[0], "", *lines[1:]])


PAGES: Mapping[str, Callable[[], str]] = {
    "reference/tables.md": tables_page,
    "reference/settings.md": settings_page,
    "reference/cli.md": cli_page,
    "reference/http.md": http_page,
    "reference/errors.md": errors_page,
    "reference/findings.md": findings_page,
    "reliability.md": reliability_page,
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
