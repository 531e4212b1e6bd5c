"""The words of a command line by their names, and which of them are shown."""

from __future__ import annotations

import pytest

from probing.arguments import arguments, is_secret, shown_command, without_secrets

pytestmark = pytest.mark.anypython

SECRETS = [
    "--token", "hf_token", "hftoken", "apiKey", "APIKey", "--api-key", "apikey",
    "WANDB_API_KEY", "+logger.wandb.api_key", "wandb_key", "wandbkey", "AWS_SECRET_ACCESS_KEY",
    "clientSecret", "--password", "db_passwd", "user.credentials", "--auth", "authToken",
    "oauth2", "Authorization", "privateKey", "key1", "api_tokens", "--keys", "KEYSTORE_PASS",
    "proxyauth", "--slack-webhook", "SLACK_WEBHOOK_URL",
]  # fmt: skip
ORDINARY = [
    "--tokenizer", "tokenizerName", "TOKENIZERS_PARALLELISM", "--max_tokens",
    "--max-new-tokens", "--pad_token", "--eos_token_id", "--author", "authors",
    "num_key_value_heads", "key_padding_mask", "keyword", "monkey", "trainer.lr",
    "--compass",
]  # fmt: skip


@pytest.mark.parametrize(("names", "is_one"), [(SECRETS, True), (ORDINARY, False)])
def test_a_name_tells_a_secret_by_its_words(names: list[str], *, is_one: bool) -> None:
    """However they are joined; what only has the letters of one is an ordinary setting."""
    assert [name for name in names if is_secret(name) is not is_one] == []


def test_arguments_have_names() -> None:
    """An option is told with its value, a number may be negative, others are counted."""
    argv = ["train.py", "data", "--lr", "-0.1", "--amp", "--name=x=y", "-v", "--layers", "1", "2"]
    assert [tuple(one) for one in arguments([*argv, "-x", "a", "--y=1", "+model.lr=0.1"])] == [
        ("argument 1", "data"), ("--lr", "-0.1"), ("--amp", "given"), ("--name", "x=y"),
        ("-v", "given"), ("--layers", "1 2"), ("-x", "a"), ("--y", "1"), ("+model.lr", "0.1"),
    ]  # fmt: skip


def test_what_an_option_is_given_shows_no_secret() -> None:
    """Overrides behind it have names of their own; a secret of its own is whole, for its print."""
    argv = ["train.py", "--set", "lr=1", "wandb.api_key=my own", "--password", "x", "key=y"]
    assert [tuple(one) for one in arguments(argv)] == [
        ("--set", "lr=1 wandb.api_key=***"), ("--password", "x key=y"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer xyz rest", "Authorization: *** rest"),
        ('{"api_key": "x \\" y", "lr": 1}', '{"api_key": ***, "lr": 1}'),
        ("os.environ['HF_TOKEN'] = 'x'; run()", "os.environ['HF_TOKEN'] = ***; run()"),
        ("https://me:xyz@host/?token=x&lr=1", "https://***@host/?token=***"),
        ("name=api_key=xyz", "name=api_key=***"),
        ("password=x, y and z", "password=***"),
        ("http://host:80/a token of s3://bucket/x=1", None),
        ("tokenizer: gpt2, lr=0.1", None),
        ("token", None),
    ],
)
def test_a_text_is_shown_without_secrets(text: str, shown: str | None) -> None:
    """Whatever comes behind the name of one; the rest stays, and all of it a second time."""
    assert without_secrets(text) == (text if shown is None else shown)
    assert without_secrets(without_secrets(text)) == without_secrets(text)


def test_a_command_line_is_shown_without_secrets() -> None:
    """Those behind an option, in a word with their name, and in an address."""
    words = ["python", "a b.py", "--api-key=x", "--password", "y", "z", "--lr", "0.1", "+a.token=t"]
    assert shown_command([*words, "s3://me:u@bucket"]) == (
        "python a b.py --api-key=*** --password *** *** --lr 0.1 +a.token=*** s3://***@bucket"
    )
