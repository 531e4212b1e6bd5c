"""What is told of the lines that a training is in, by the text of their file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from probing.diagnosis.doctor.hot_lines import lines_in

pytestmark = pytest.mark.anypython

TEXT = """
def train(model):
    for batch in range(9):
        step(model,
             batch)
        def late():
            return model
    return [one for one in model]

total = 0
while total < 9:
    total += 1
"""


def test_a_line_is_in_a_loop_of_its_own_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one of a function around it, it is none; a file is read once for all its lines."""
    place, parse = tmp_path / "train.py", ast.parse
    place.write_text(TEXT, "utf-8")
    parsed: list[str] = []

    def counted(text: str) -> ast.Module:
        parsed.append(text)
        return parse(text)

    main = "thread (1): MainThread"
    stacks = [((main, f"f ({place}:{line})"), 1) for line in range(2, 13)]
    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", counted)
        found = lines_in(stacks)
    assert [line.place for line in found if line.in_loop] == [
        f"train.py:{line}" for line in (3, 4, 5, 8, 11, 12)
    ]
    assert parsed == [TEXT]
    gone = [((main, f"f ({tmp_path}/gone.py:3)"), 1)]
    assert [line.in_loop for line in lines_in(gone)] == [False]
