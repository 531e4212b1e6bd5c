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
from markdown_parts import anchor, bullets, docstring, first_paragraph, grid, page, prose

import probing.cluster.union.errors  # noqa: F401 - that all errors are in the tree
from probing.cli.command import examples_of, usage_path
from probing.cli.group import probing as cli
from probing.cli.help.contract import EXIT_CODES, OUTPUTS, OWN_CODES
from probing.cli.help.examples import ANSWERS
from probing.cli.render.process.catalog import sql_type
from probing.cli.tasks import TASKS
from probing.diagnosis.doctor.against import AGAINST_RULES
from probing.diagnosis.doctor.findings import CERTAINTIES, GROUPS, Rule
from probing.diagnosis.doctor.report import ALL_RULES
from probing.errors import ProbingError, error_classes
from probing.messages import common as wire
from probing.messages.about import (
    act as act_wire,
    allocation as allocation_wire,
    eval as eval_wire,
    job as job_wire,
    labels as labels_wire,
    union as union_wire,
)
from probing.messages.openapi import openapi
from probing.messages.routes import NODE_ROUTES, ROUTES, Route
from probing.settings import SETTINGS, Setting
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
_TARGET_OPTIONS = 8  # the first of those of `probing`: whom to ask, and how
_CLI_COMMON = "All but {} take these, too, before or behind their names; each takes `-h`."
_CLI_SHARED = "Options of several commands:"
_HTTP_INTRO = (
    "Served on the agent's unix socket and, if asked for, on TCP (with `Authorization: Bearer"
    " TOKEN`). Bodies are JSON, rows an Arrow IPC stream. A GET changes nothing. `GET"
    " /v1/openapi.json` says the same to programs."
)
_BODIES_INTRO = "`member?` may be left out; `type?` may be null."
_HTTP_ERRORS = (
    'An error has the same body on every route: `{"error": {"code", "status", "exit_code",'
    ' "message", "help", "detail"}}`. The codes are listed in [Errors](errors.md).'
)
_RELIABILITY_INTRO = (
    "A test causes each of these faults and compares what comes of it with the promise: `sh"
    " tests/run.sh -m fault -s` (S2 and S3: `scripts/nightly`). The figures are those of"
    " `docs/reliability.json`, which `--record-faults` writes."
)
_CONTRACT_INTRO = (
    "A program may rely on what stands here. Keys are added; none goes or changes its meaning"
    " without a line in the changelog. Answers go to stdout, and notes, progress and errors to"
    " stderr, so that stdout of a command that has failed is empty."
)
_CONTRACT_ERRORS = (
    "An error is one sentence on stderr that begins with `error:`, and what to do next below it."
    " [Errors](errors.md) lists them with their codes. Beyond that:"
)
_CONTRACT_JSON = (
    "With `--json`, one value: an object; an `array` of objects; or `rows`, an array of objects"
    " whose keys are the columns. Of several processes (`-t A -t B`) a command that asks each by"
    " itself writes an array of `{endpoint, answer}`. What was not measured is `null`; NaN and the"
    ' infinities are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`. Keys that end in `_s`,'
    " `_ns` or `_bytes` are in that unit. Actions beside `act lr` answer as it does."
)
_FINDINGS_INTRO = (
    "The rules of [`probing ENDPOINT doctor`](../how-to/doctor.md), the gravest of a group first:"
    " the most that a finding can be, what it goes by, and what to do. A finding prints the command"
    " that shows more, often a query of the columns that it goes by."
)
_STATEMENT = ' query "'
_WHICH_ERROR = "Errors and their codes: [Errors](errors.md)."


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
    """A column's meaning, with the values it may have unless it names them itself."""
    if all(f"`{value}`" in column.doc for value in column.values):
        return column.doc
    return f"{column.doc} One of {', '.join(f'`{value}`' for value in column.values)}."


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
    return f"`{setting.env}` ({setting.type}, {_default(setting)}{other}{live})"


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
    asked = grid(("what is asked most", "command"), ((q, f"`{c}`") for q, c in ANSWERS))
    parts += [prose(cli.epilog), asked, _tasks(), bullets(everywhere)]
    target_options = {*everywhere[:_TARGET_OPTIONS]}
    without = [c.command_path for c in contexts if not target_options <= {*_options(c)}]
    parts += [_CLI_COMMON.format(", ".join(f"`{path}`" for path in without)), _CLI_SHARED]
    parts.append(bullets(common))
    for context in contexts[1:]:
        depth = "##" if context.parent is contexts[0] else "###"
        parts += [f"{depth} {context.command_path}", prose(context.command.help), _usage(context)]
        rows = _options(context)
        own = [row for row in rows if row not in everywhere and row not in common]
        parts.append(bullets(own))
        examples = "\n".join(examples_of(context))
        parts += [f"```text\n{examples}\n```"] if examples else []
        shared = ", ".join(row[0] for row in rows if row in common)
        parts += [f"Common: {shared}."] if shared else []
    return page([*parts, _WHICH_ERROR])


def contract_page() -> str:
    """What programs may rely on: exit codes and keys."""
    parts = ["# Exit codes and JSON", _CONTRACT_INTRO, "## Exit codes"]
    parts.append(grid(("code", "meaning"), ((f"`{n}`", text) for n, text in EXIT_CODES.items())))
    parts += [_CONTRACT_ERRORS, bullets((f"`probing {n}`", text) for n, text in OWN_CODES.items())]
    parts += ["## JSON", _CONTRACT_JSON]
    rows = (
        (f"`{name}`", output.shape, ", ".join(f"`{key}`" for key in output.all_keys()))
        for name, output in OUTPUTS.items()
    )
    parts.append(grid(("command", "shape", "keys"), rows))
    return page(parts)


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
    """The usage line, where there are arguments."""
    pieces = context.command.collect_usage_pieces(context)
    if pieces == [context.command.options_metavar]:
        return ""
    return f"`{' '.join((usage_path(context), *pieces))}`"


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
        bullets((_route(r), r.doc) for r in (*ROUTES, *NODE_ROUTES)),
        "## Bodies",
        _BODIES_INTRO,
    ]
    for name in sorted(set(schemas) - {"Error"}):
        parts += _body_section(_wire_class(name), schemas[name])
    return page(parts)


def _route(route: Route) -> str:
    """A route, with what it takes and gives."""
    takes = f" {_body(route.request)}" if route.request is not None else ""
    return f"`{route.method} {route.path}`{takes} → {_answer(route)}"


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
    members = {
        name: f"`{name}{'' if name in schema['required'] else '?'}` {_json_type(member)}"
        for name, member in schema["properties"].items()
    }
    lines = [f"- {term}: {meanings[name]}" for name, term in members.items() if name in meanings]
    plain = [term for name, term in members.items() if name not in meanings]
    lines += [f"- {', '.join(plain)}"] if plain else []
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
    parts = ["# Findings", _FINDINGS_INTRO, "\n".join(promises)]
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


PAGES: Mapping[str, Callable[[], str]] = {
    "reference/tables.md": tables_page,
    "reference/settings.md": settings_page,
    "reference/cli.md": cli_page,
    "reference/contract.md": contract_page,
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
