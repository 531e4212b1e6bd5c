"""The line that is injected, and the scripts that it runs.

Rules of this file: texts only. What is injected must be short, leave no name behind in
``__main__``, depend on none that the job may have replaced there, and do nothing once the
script is gone.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import bootstrap, evaluation

# Short, for the room there is; closed, because the warning about a file that is not leaves
# `__warningregistry__` behind.
_CODE = "with open({path!r})as f:exec(f.read(),{{}})"
# Where there is room: why it could not, as `bootstrap` would say it.
_TELLING_CODE = """\
try:
 with open({path!r})as f:exec(f.read(),{{}})
except FileNotFoundError:pass
except BaseException as e:
 import os
 os.symlink(ascii({{'error':type(e).__name__+': '+str(e)[:500]}}),{path!r}+'.failed')
"""
# Not by `__builtins__`: in a `__main__` made by `runpy`, as of a spawned worker, it is a dict.
_CALL = "try:__import__('builtins').exec({code!r},{{}})\nexcept:pass\n"


def injected_code(script: str, *, is_telling: bool = False) -> str:
    """The code that runs a script, if it is still there.

    Args:
        is_telling: Whether it leaves word where it cannot, for which it is longer.
    """
    code = _TELLING_CODE if is_telling else _CODE
    return _CALL.format(code=code.format(path=script))


def bootstrap_text(order: bootstrap.Order) -> str:
    """The script that brings the agent in."""
    return _text("bootstrap", order)


def evaluation_text(order: evaluation.Order) -> str:
    """The script that runs a piece of code."""
    return _text("evaluation", order)


def forks_text() -> str:
    """What holds a process back from forking, see `probing.safety.forks`."""
    return _standing_alone(Path(__file__).parents[3] / "safety" / "forks.py")


def _text(name: str, order: Mapping[str, object]) -> str:
    """A script of this folder with its order behind it, in ASCII."""
    return f"{_standing_alone(Path(__file__).with_name(f'{name}.py'))}\n\nbegin({dict(order)!a})\n"


def _standing_alone(path: Path) -> str:
    """The text of a module without annotations: those import something, be it ``__future__``."""
    tree = ast.parse(path.read_text("ascii"))
    return ast.unparse(ast.fix_missing_locations(_Bare().visit(tree)))


class _Bare(ast.NodeTransformer):
    """Leaves out annotations, which nobody reads there."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        return None if node.module == "__future__" else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.Assign | None:
        if node.value is None:
            return None
        return ast.Assign(targets=[node.target], value=node.value)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(arg=node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        return node
