"""Whether the tier runs is said in one line, and where it does, it comes last and on one worker."""

from pathlib import Path

import pytest

from tests.cluster import builds, capable

TESTS = """
import pytest

@pytest.mark.cluster
def test_real():
    pass

@pytest.mark.cluster
@pytest.mark.timeout(7)
def test_real_too():
    pass

def test_other():
    pass
"""
SHOW = """
def pytest_collection_finish(session):
    for item in session.items:
        limit = item.get_closest_marker("timeout")
        print("chosen", item.name, *(limit.args if limit else ()))
"""

ABLE = """
from tests.cluster import builds, capable

pytest_plugins = ["tests.cluster.tier"]
capable.obstacle, builds.missing = (lambda: ""), list
"""
REPO = Path(__file__).parents[2]


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite with two tests of the tier and one other, on a machine that can run it."""
    monkeypatch.setattr(capable, "obstacle", lambda: "")
    monkeypatch.setattr(builds, "missing", list)
    pytester.makepyfile(TESTS)
    pytester.makeconftest(SHOW)
    pytester.makeini("[pytest]\nmarkers = cluster: on a real control plane")
    return pytester


def run(suite: pytest.Pytester, *arguments: str) -> tuple[int, list[str]]:
    done = suite.runpytest_inprocess("-p", "tests.cluster.tier", *arguments)
    return int(done.ret), [line for line in done.outlines if line.startswith(("cluster tier", "chosen"))]


def test_it_comes_last_and_within_a_time(suite: pytest.Pytester) -> None:
    assert run(suite) == (
        0,
        [
            "cluster tier: runs, last",
            "chosen test_other",
            "chosen test_real 600.0",
            "chosen test_real_too 7",
        ],
    )


def test_elsewhere_one_line_says_why_and_the_rest_runs(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capable, "obstacle", lambda: "needs root")
    assert run(suite) == (0, ["cluster tier: not run: needs root", "chosen test_other"])


def test_it_does_not_build_for_minutes_in_the_middle_of_tests(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "missing", lambda: ["kubelet"])
    code, (said, *chosen) = run(suite)
    assert code == 0
    assert said.startswith("cluster tier: not run: kubelet not built yet")
    assert chosen == ["chosen test_other"]


def test_it_is_left_out_when_told(suite: pytest.Pytester) -> None:
    assert run(suite, "--cluster=never") == (0, ["cluster tier: not run: told not to", "chosen test_other"])


def test_where_it_must_run_and_cannot_is_an_error(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capable, "obstacle", lambda: "needs root")
    assert run(suite, "--cluster=always") == (int(pytest.ExitCode.USAGE_ERROR), [])


def test_of_several_workers_one_runs_it(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    suite.makeconftest(ABLE)
    suite.makepyfile(**{"tests/cluster/test_more": TESTS})
    done = suite.runpytest_subprocess("tests", "--import-mode=importlib", "-v", "-n2", "--dist=loadgroup")
    workers = {line.split()[0] for line in done.outlines if "PASSED" in line and "::test_real" in line}
    assert done.ret == 0
    assert len(workers) == 1
