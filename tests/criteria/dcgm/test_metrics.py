"""An exporter's metrics: whose they are, what is missing, and what they show of health."""

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.dcgm.document import MAX_BYTES
from chaos_gpu.criteria.dcgm.metrics import REQUIRED, XID, looks_like_metrics, read_metrics
from chaos_gpu.criteria.dcgm.reader import read_output
from chaos_gpu.errors import UsageError

HEALTH = "DCGM_EXP_GPU_HEALTH_STATUS"


def line(name: str, value: str = "1", uuid: str = "GPU-a", gpu: str = "0", **labels: str) -> str:
    pairs = {"gpu": gpu, "UUID": uuid} | labels
    inner = ",".join(f'{key}="{text}"' for key, text in pairs.items())
    return f"{name}{{{inner}}} {value}\n"


def whole(uuid: str = "GPU-a", gpu: str = "0", health: str = "0") -> str:
    """Everything that a GPU should have."""
    fields = "".join(line(name, uuid=uuid, gpu=gpu) for name in REQUIRED)
    return fields + line(HEALTH, health, uuid, gpu, health_watch="MEM", health_error_code="")


def test_series_belong_to_a_uuid_whatever_the_label_is_called() -> None:
    text = (
        "# HELP DCGM_FI_DEV_GPU_TEMP words\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n\n"
        'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",device="nvidia0",Hostname="n"} 41\n'
        'DCGM_FI_DEV_GPU_TEMP{gpu="1",uuid="GPU-b",hostname="n"} 42.5 1700000000000\n'
        'DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{nvlink="0",gpu_uuid="GPU-a"} 3e2\n'
        'DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{nvlink="1",gpu_uuid="GPU-a",} 300.000000\n'
        'DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a",GPU_I_ID="12"} NaN\n'
        "go_goroutines 12\n"
        'DCGM_FI_DEV_SWITCH{nvswitch="0"} 1\n'
    )
    found = read_metrics(text.encode())
    assert {uuid: series.gpu for uuid, series in found.items()} == {"GPU-a": "0", "GPU-b": "1"}
    assert found["GPU-a"].values("DCGM_FI_DEV_GPU_TEMP") == (41.0,)
    assert found["GPU-b"].values("DCGM_FI_DEV_GPU_TEMP") == (42.5,)
    assert found["GPU-a"].values("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL") == (300.0, 300.0)
    assert math.isnan(found["GPU-a"].values("DCGM_FI_DEV_SM_CLOCK")[0])
    assert found["GPU-a"].values(XID) == ()
    assert "DCGM_FI_DEV_FB_USED" in found["GPU-b"].missing()
    assert found["GPU-b"].missing(["DCGM_FI_DEV_GPU_TEMP"]) == ()


def test_labels_are_unescaped() -> None:
    text = r'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a",err_msg="a \"b\", }\\ \n \q"} 1' + "\n"
    (sample,) = read_metrics(text.encode())["GPU-a"].samples
    assert sample.labels["err_msg"] == 'a "b", }\\ \n \\q'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (line("DCGM_FI_DEV_GPU_TEMP").strip(), "cut off"),
        (line("DCGM_FI_DEV_GPU_TEMP") * 2, "line 2 repeats"),
        ("DCGM_FI_DEV_GPU_TEMP\n", "line 1 is no metric"),
        ("DCGM_FI_DEV_GPU_TEMP{ 1\n", "no metric"),
        ('DCGM_FI_DEV_GPU_TEMP{UUID="a" 1\n', "no metric"),
        ('DCGM_FI_DEV_GPU_TEMP{UUID="a} 1\n', "no metric"),
        ("DCGM_FI_DEV_GPU_TEMP{} 1_0\n", "no metric"),
        ("DCGM_FI_DEV_GPU_TEMP{} 1 2 3\n", "no metric"),
        ("DCGM_FI_DEV_GPU_TEMP abc\n", "no metric"),
        ("<html>\n", "no metric"),
        ("\n" * (MAX_BYTES + 1), "longer than 4 MiB"),
    ],
    ids=range(11),
)
def test_what_is_no_metric_is_an_error(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_metrics(text.encode())


def test_an_exporter_without_gpus_has_none() -> None:
    assert read_metrics(b"") == {}
    assert read_metrics(b"go_goroutines 12\nDCGM_FI_X{} 1\n") == {}


@pytest.mark.parametrize(
    ("text", "verdict", "action", "why"),
    [
        (whole(), "pass", "none", ""),
        (whole() + whole("GPU-b", "1"), "pass", "none", ""),
        (whole() + line(XID, "0"), "pass", "none", ""),
        (whole(health="10"), "warn", "triage", "MEM on GPU 0: Warn"),
        (whole(health="20"), "fail", "triage", "MEM on GPU 0: Fail"),
        (whole(health="7"), "inconclusive", "none", "MEM on GPU 0: Unknown"),
        (whole() + line(XID, "79"), "warn", "triage", f"{XID} on GPU 0: Warn"),
        (whole() + line(XID, "1"), "warn", "triage", f"{XID} on GPU 0: Warn"),
        (whole() + whole("GPU-b", "1") + line(XID, "79"), "warn", "triage", ""),  # of one GPU, and rightly so
        (whole() + line("DCGM_FI_DEV_ROW_REMAP_FAILURE"), "fail", "triage", "ROW_REMAP_FAILURE on GPU 0: Fail"),
        (whole() + line("DCGM_FI_DEV_ROW_REMAP_FAILURE", "0"), "pass", "none", ""),
        (whole() + line(REQUIRED[0], uuid="GPU-b", gpu="1"), "inconclusive", "none", "health is not exported"),
        (line(HEALTH, "0"), "inconclusive", "none", f"no series of {REQUIRED[0]}, "),
        ("DCGM_FI_DEV_GPU_TEMP 1\n", "inconclusive", "none", "names no GPU"),
        ("# HELP DCGM_FI_DEV_GPU_TEMP x\n", "inconclusive", "none", "names no GPU"),
    ],
)
def test_what_metrics_show_of_health(text: str, verdict: str, action: str, why: str) -> None:
    report = read_output(text.encode())
    assert (str(report.verdict), str(report.action)) == (verdict, action)
    assert any(why in reason for reason in report.reasons) or not why


def test_results_carry_uuid_and_the_healths_error_code() -> None:
    text = whole("GPU-b", "3", "20").replace('health_error_code=""', 'health_error_code="4"')
    (result,) = read_output(text.encode()).as_json()["results"]
    assert (result["test"], result["entity"], result["uuid"]) == ("MEM", "GPU 3", "GPU-b")
    assert result["errors"][0]["id"] == 4


@pytest.mark.parametrize(("code", "number"), [("4", 4), ("", None), ("²", None), ("x", None), ("1234567890", None)])
def test_a_warnings_error_code_is_a_number_or_none(code: str, number: int | None) -> None:
    text = whole(health="10").replace('health_error_code=""', f'health_error_code="{code}"')
    (result,) = read_output(text.encode()).as_json()["results"]
    assert result["errors"][0]["id"] == number


def test_metrics_are_told_from_other_texts() -> None:
    assert looks_like_metrics(b"x\nDCGM_EXP_XID 1\n")
    assert not looks_like_metrics(b"DCGM GPU Diagnostic")
    assert not looks_like_metrics(b'{"a": "DCGM_FI_DEV_GPU_TEMP"}')


@given(st.text(st.sampled_from('DCGM_FI{}="\\,\n 1.eN#'), max_size=80))
def test_any_text_raises_only_the_declared_error(text: str) -> None:
    with suppress(UsageError):
        read_metrics(text.encode())
