"""Secrets are masked wherever they stand; what only looks a little like one is left alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.redact import MASK, is_secret_name, redact, redact_text

S = "s3cr3t-Value_0123456789"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"Authorization: Bearer {S}", f"Authorization: Bearer {MASK}"),
        (f"authorization: basic {S}", f"authorization: basic {MASK}"),
        (f"got bearer {S}, gave up", f"got bearer {MASK}, gave up"),
        (f"token {JWT} expired", f"token {MASK} expired"),
        (f"HF_TOKEN={S} python train.py", f"HF_TOKEN={MASK} python train.py"),
        (f'AWS_SECRET_ACCESS_KEY="{S} x" y', f"AWS_SECRET_ACCESS_KEY={MASK} y"),
        (f"password: {S}\nuser: a", f"password: {MASK}\nuser: a"),
        (f'{{"password": "{S}", "user": "a"}}', f'{{"password": {MASK}, "user": "a"}}'),
        (f"client-key-data: {S}", f"client-key-data: {MASK}"),
        (f"certificate-authority-data: {S}==", f"certificate-authority-data: {MASK}"),
        (f"curl --token {S} x", f"curl --token {MASK} x"),
        (f"curl --api-key={S}&x", f"curl --api-key={MASK}&x"),
        (f"postgres://admin:{S}@db/x", f"postgres://{MASK}@db/x"),
        (f"http://127.0.0.1:8001/{S}/api/v1/nodes", f"http://127.0.0.1:8001/{MASK}/api/v1/nodes"),
        ("ghp_abcdefghijklmnopqrst", MASK),
        (
            f"-----BEGIN PRIVATE KEY-----\n{S}\n-----END PRIVATE KEY-----",
            f"-----BEGIN PRIVATE KEY-----{MASK}-----END PRIVATE KEY-----",
        ),
        (f"-----BEGIN PRIVATE KEY-----\n{S}", f"-----BEGIN PRIVATE KEY-----{MASK}"),
    ],
)
def test_in_text(text: str, masked: str) -> None:
    assert redact_text(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:3b:00): 48, pid=4194305, name=cgpu-0a1b2c3d, An uncorrectable double bit error",
        "tokens_per_s: 3120",
        "GPU-11111111-2222-3333-4444-555555555555",
        "https://10.0.0.1:6443/api/v1/nodes",
        "the token was refused",
        "secretName: pull-secret",
        "2 of 3 nodes; author=someone",
        "NCCL_DEBUG=INFO",
    ],
)
def test_left_alone(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ({"token": S, "x": [{"api_key": S}]}, {"token": MASK, "x": [{"api_key": MASK}]}),
        ({"name": "DB_PASSWORD", "value": S}, {"name": "DB_PASSWORD", "value": MASK}),
        ({"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "NCCL_DEBUG", "value": "INFO"}),
        ({"clientKeyData": S, "secretRef": {"name": "x"}}, {"clientKeyData": MASK, "secretRef": {"name": "x"}}),
        ({"password": {"deep": S}}, {"password": MASK}),
        ({"token": "", "auth": None, "secret": False}, {"token": "", "auth": None, "secret": False}),
        ({1: "a", None: (f"A_TOKEN={S}", 2.5)}, {1: "a", None: [f"A_TOKEN={MASK}", 2.5]}),
    ],
)
def test_in_json(value: Any, masked: Any) -> None:
    assert redact(value) == masked


@pytest.mark.parametrize("name", ["token", "HF_TOKEN", "accessToken", "db.password", "private key", "Authorization"])
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["tokens", "max_tokens", "tokens_per_s", "author", "secretName", "key", "marker", "broken"]
)
def test_other_names(name: str) -> None:
    assert not is_secret_name(name)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["token", "value", "name"]), inner),
    max_leaves=20,
)
PIECES = st.lists(
    st.sampled_from(
        [
            "token",
            "=",
            ": ",
            "Bearer ",
            '"',
            "'",
            S,
            "AKIA",
            "://",
            "@",
            "-----BEGIN A-----",
            MASK,
            "_",
            "--",
            " ",
            "\\",
        ]
    )
    | st.text(max_size=3)
).map("".join)


@given(JSON | PIECES)
def test_twice_is_once(value: Any) -> None:
    assert redact(redact(value)) == redact(value)


@given(JSON)
def test_it_stays_json_of_the_same_shape(value: Any) -> None:
    masked = redact(value)
    json.dumps(masked)
    assert type(masked) is type(value)
    if isinstance(value, dict):
        assert list(masked) == list(value)


SECRETS = st.from_regex(r"[A-Za-z0-9_-]{8,40}", fullmatch=True)


@given(
    SECRETS,
    st.sampled_from(["A_TOKEN={}", "password: {}", "Authorization: Bearer {}", "https://u:{}@h/", '"secret": "{}"']),
)
def test_no_secret_survives(secret: str, form: str) -> None:
    assert secret not in redact_text(form.format(secret))
    assert secret not in json.dumps(redact({"env": [form.format(secret)], "my_token": secret}))
