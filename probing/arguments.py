"""The words of a command line by their names, and what is shown of them: no secret.

Rules of this file: pure, and the one place that knows what is a secret. A name says it, by its
words: `hf_token` and `apiKey` do, `max_tokens`, `tokenizer` and `author` do not. What is hidden
though it is none costs a word of an answer; what is shown though it is one cannot be taken back.
Patterns are compiled when they are first needed: more load this file than have a use for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

HIDDEN = "***"
_OPTION = r"--?[A-Za-z][\w.-]*"
_PYTHONS_OPTION = r"(?s)-(?:[^cmWX-]*([cmWX])|-check-hash-based-pycs$)(.*)"
"""One that takes a value, as its own word or behind it; others may stand before it: ``-um``."""
_RUNNER = "probing._run"
"""The module that `probing run` becomes."""
_OVERRIDE = r"[+~]{0,2}[A-Za-z_][\w.@/-]*"
"""What Hydra and OmegaConf take for a name before ``=``."""
_WORD_ENDS = r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z]+"
_ORDINARY = (
    r"\b(?:bos|eos|pad|unk|sep|cls|mask|image|special|per) token\b"
    r"|\b(?:max|min|num|n|new|total|per|batch|input|output)(?: new)? tokens?\b|\btokens per\b"
    r"|\btoken (?:ids?|types?|length|count|dropout|embeddings?)\b"
    r"|\bkey (?:value )?(?:heads|dim|size|length|proj|padding|mask)\b"
    r"|\b(?:don|hoc|hot|mon|tur)key\b"
)
"""What models and their data are set up with."""
_WORDS = (
    r"secret|passw|passphrase|credential|webhook"
    r"|tokens?\b|keys?\b|auth\b|\bpass\b"
    r"|\b(?:authorization|authentication|bearer|creds?|jwt|pwd)\b"
)
_LOGIN = r"(?<=://)[^\s\"']*(?=@[^\s/@])"
_NAMED = r"(?<![\w.-])([\w.-]+)[\"'\]]*\s*[=:]{1,2}\s*"
_VALUE = r"""(?xsi) (?!\*\*\*) (?:(?:basic|bearer|token)\s+)?
    (?:"(?:[^"\\]|\\.)*"? | '(?:[^'\\]|\\.)*'? | \S+)"""


class Argument(NamedTuple):
    """One word of the command line, or an option with its value."""

    name: str
    value: str


def is_secret(name: str) -> bool:
    """Whether what has this name must not be shown."""
    words = re.sub(_WORD_ENDS, " ", name).lower()
    return re.search(_WORDS, re.sub(_ORDINARY, "", words)) is not None


def arguments(argv: list[str]) -> list[Argument]:
    """The arguments of the script by name; those without are numbered.

    The value of an option whose name is a secret's is whole, any other is without secrets.
    """
    found: list[Argument] = []
    words, place = list(argv[1:]), 0
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if equals and _is_name(name):
            values = [value]
        elif re.fullmatch(_OPTION, name):
            values = []
            while words and not re.fullmatch(_OPTION, words[0].partition("=")[0]):
                values.append(words.pop(0))
        else:
            place += 1
            name, values = f"argument {place}", [word]
        shown = values if is_secret(name) else map(without_secrets, values)
        found.append(Argument(name, " ".join(shown) if values else "given"))
    return found


def what_python_runs(words: Sequence[str]) -> list[str]:
    """A script, or ``-m`` or ``-c`` with its word, and its arguments; what `probing run` runs, too.

    Args:
        words: What follows the program `python` on a command line, its own options included.
    """
    found = what_python_starts(words)
    while found[:2] == ["-m", _RUNNER]:
        found = what_python_starts(found[2:])
    return found


def what_python_starts(words: Sequence[str]) -> list[str]:
    """The same, where `probing run` is a module like any other."""
    rest = list(words)
    while rest and re.match("-.", rest[0]):
        option = re.match(_PYTHONS_OPTION, rest.pop(0))
        if option is None:
            continue
        value = [option[2]] if option[2] else rest[:1]
        rest = rest if option[2] else rest[1:]
        if option[1] in ("m", "c"):
            return [f"-{option[1]}", *value, *rest]
    return rest


def command_without_secrets(words: Iterable[str]) -> list[str]:
    """The words of a command line as they may be kept and handed on."""
    shown, is_hidden = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        is_option = re.fullmatch(_OPTION, name) is not None
        if is_option:
            is_hidden = not equals and is_secret(name)
        shown.append(HIDDEN if is_hidden and not is_option else without_secrets(word))
    return shown


def shown_command(words: Iterable[str]) -> str:
    """A command line in one line, for a reader."""
    return " ".join(command_without_secrets(words))


def without_secrets(text: str) -> str:
    """A text with the login of each address hidden, and each value whose name is a secret's."""
    name, equals, _ = text.partition("=")
    if equals and _is_name(name) and is_secret(name):
        return f"{name}={HIDDEN}"
    text = re.sub(_LOGIN, HIDDEN, text)
    parts, done = [], 0
    for found in re.finditer(_NAMED, text):
        if found.start() < done or not is_secret(found[1]):
            continue
        value = re.compile(_VALUE).match(text, found.end())
        if value is not None:
            parts += [text[done : found.end()], HIDDEN]
            done = value.end()
    return "".join(parts) + text[done:]


def _is_name(text: str) -> bool:
    """Whether what stands before ``=`` in a word is an option or a part of a configuration."""
    return bool(re.fullmatch(_OPTION, text) or re.fullmatch(_OVERRIDE, text))
