"""Bodies are written as Go writes JSON: the `test` of a JSON patch compares texts as they are written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.cluster import client
from chaos_gpu.lab.platform import detector, health_api
from chaos_gpu.payloads import reverter

ENCODERS = (client.encoded, reverter.encoded, detector.encoded, health_api.encoded)


@pytest.mark.parametrize("encoded", ENCODERS)
def test_texts_are_as_go_writes_them(encoded: object) -> None:
    assert callable(encoded)
    said = encoded("pid='<unknown>' & é 日本 \u2028\u2029 \"quoted\" \\ \n\t\x1f/")
    written = r"""pid='\u003cunknown\u003e' \u0026 é 日本 \u2028\u2029 \"quoted\" \\ \n\t\u001f/"""
    assert said.decode() == f'"{written}"'


@given(st.text())
def test_what_is_written_is_read_again(text: str) -> None:
    body = {"value": text, text: [text]}
    for encoded in ENCODERS:
        assert json.loads(encoded(body)) == body


def test_half_a_surrogate_pair_is_written_too() -> None:
    assert client.encoded("\udc80") == b'"\\udc80"'
