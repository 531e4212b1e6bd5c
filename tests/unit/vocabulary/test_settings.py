"""Settings: read once from a mapping, checked, and told in words when they are wrong."""

from __future__ import annotations

import re

import pytest

from probing.errors import BadSetting
from probing.ring.format import layout_of
from probing.safety import off_switch
from probing.settings import SETTINGS, Settings, find
from probing.settings.values import NO, YES
from probing.tables import TABLES_BY_NAME

pytestmark = pytest.mark.anypython


def test_defaults_need_no_environment() -> None:
    """An empty environment gives every setting its default."""
    settings = Settings.from_env({})
    assert all(getattr(settings, s.name) == s.default for s in SETTINGS)


def test_secrets_are_not_shown() -> None:
    """Tokens, and a webhook, where whoever has its address can post."""
    secret = {setting.name for setting in SETTINGS if setting.secret}
    assert secret == {"token", "read_token", "watch"}
    environment = {find(name).env: "http://127.0.0.1/XYZ" for name in secret}
    assert "XYZ" not in repr(Settings.from_env(environment))


def test_sizes_of_rows_are_those_of_the_tables() -> None:
    """What a setting says of the bytes of each row is what the ring of its table takes."""
    told = 0
    for setting in SETTINGS:
        if not setting.doc.endswith("bytes each."):
            continue
        rows, _, sizes = setting.doc.partition(";")
        names = re.findall(r"(?:python|probing)\.(\w+)", rows)
        found = [int(size) for size in re.findall(r"\d+", sizes)]
        expected = [layout_of(TABLES_BY_NAME[name]).row_size for name in names]
        assert found in (expected, expected[:1] * (len(set(expected)) == 1)), setting.name
        told += len(names)
    assert told > 8


def test_values_have_the_settings_type() -> None:
    """Each setting is read as what it is declared to be; an empty variable counts as unset."""
    settings = Settings.from_env(
        {
            "PROBING": "1",
            "PROBING_TRACE_ROWS": " 4096 ",
            "PROBING_KEEP_HOURS": "1.5",
            "PROBING_RECORDING": "off",
            "PROBING_LISTEN": "127.0.0.1:0",
            "PROBING_HOME": "",
        }
    )
    assert (settings.mode, settings.trace_rows, settings.keep_hours) == ("on", 4096, 1.5)
    assert (settings.recording, settings.listen, settings.home) == (False, "127.0.0.1:0", "")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("PROBING", "maybe", "'maybe' is not one of"),
        ("PROBING_TRACE_ROWS", "many", "'many' is not an integer"),
        ("PROBING_TRACE_ROWS", "1.5", "'1.5' is not an integer"),
        ("PROBING_TRACE_ROWS", "3", "3 is less than 64, the least"),
        ("PROBING_KEEP_HOURS", "nan", "'nan' is not a number"),
        ("PROBING_KEEP_HOURS", "inf", "inf is more than 1000000, the most"),
        ("PROBING_SAMPLING_HZ", "1e9", "1e9 is more than 1000, the most"),
        ("PROBING_TRACE_ROWS", "99999999999", "is more than 100000000, the most"),
        ("PROBING_HOME", "runs", "'runs' is a relative path"),
        ("PROBING_RECORDING", "2", "'2' is not one of 1, on, true, yes, 0, off, false, no"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str, sentence: str) -> None:
    """The error names the variable, the value and what it should have been."""
    with pytest.raises(BadSetting, match=name) as caught:
        Settings.from_env({name: value})
    assert sentence in caught.value.message


@pytest.mark.parametrize("is_yes", [True, False])
def test_yes_and_no_are_the_same_words_everywhere(is_yes: bool) -> None:
    """Of the mode, of a switch, and of what switches all of probing off."""
    for word in YES if is_yes else NO:
        for written in (word, word.upper(), f" {word} "):
            settings = Settings.from_env({"PROBING": written, "PROBING_RECORDING": written})
            assert settings.mode == ("on" if is_yes else "off")
            assert settings.recording is is_yes
            assert off_switch.is_wanted({"PROBING": written}) is is_yes
            assert off_switch.is_off({off_switch.VARIABLE: written}) is is_yes


def test_only_live_settings_change() -> None:
    """A live setting changes by name or variable; one read at start says where to set it."""
    settings = Settings()
    assert settings.with_value("eval_timeout_s", "3").eval_timeout_s == 3.0
    assert settings.with_value("PROBING_EVAL_TIMEOUT_S", "4").eval_timeout_s == 4.0
    with pytest.raises(BadSetting, match="set PROBING_HOME before the start"):
        settings.with_value("home", "/tmp")
    with pytest.raises(BadSetting, match="there is no such setting"):
        find("no_such_setting")


def test_every_setting_is_described() -> None:
    """Names, variables and sentences are there, unique and in the house's form."""
    assert len({s.env for s in SETTINGS}) == len(SETTINGS)
    for setting in SETTINGS:
        assert re.fullmatch(r"PROBING(_[A-Z]+)*", setting.env)
        assert setting.doc.endswith(".")


def test_a_token_shows_in_no_repr() -> None:
    """Settings that are printed by mistake do not give the token away."""
    assert "s3cret" not in repr(Settings(token="s3cret"))
