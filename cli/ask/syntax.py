"""Whether a text is Python, before any process is asked to run it."""

from __future__ import annotations

import ast
import warnings


def find_syntax_error(source: str) -> tuple[str, str] | None:
    """What is wrong with the code and an excerpt that points to it; None when it can be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: {error.msg}", _excerpt(source, error)
    except ValueError as error:
        return str(error), ""
    except (RecursionError, MemoryError):
        return "the code is nested too deeply to be parsed", ""
    return None


def _excerpt(source: str, error: SyntaxError) -> str:
    """The faulty line with a caret, or nothing when there is no such line."""
    lines = source.split("\n")
    if not error.lineno or error.lineno > len(lines):
        return ""
    return f"{lines[error.lineno - 1]}\n{' ' * ((error.offset or 1) - 1)}^"
