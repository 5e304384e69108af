"""What an injector itself must be allowed is shown by the plan, and asked before anything is changed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos_gpu.faults.names import INJECTOR, NAMESPACE
from chaos_gpu.faults.rights import INJECTOR_RIGHTS, INJECTOR_RIGHTS_BY
from chaos_gpu.lab.trainer.manifest import write_manifest
from chaos_gpu.payloads.eviction import BY_API
from tests.engine.site import Json, Site, activity, experiment, over, unchanged
from tests.engine.test_heart import plan
from tests.engine.test_refusals import check_refused
from tests.engine.test_rights import RBAC, kubeconfig_of

ROLE = f"{RBAC}/namespaces/{NAMESPACE}/roles/{INJECTOR}"
RUNNERS = f"{RBAC}/clusterroles/chaos-gpu-runner"


def ending(tmp_path: Path, means: str) -> Json:
    """An experiment in which a training is ended by these means."""
    job = str(write_manifest(tmp_path, []))

    def change(made: Json) -> None:
        made["configuration"]["job"] = job

    told = activity("action", "end", "chaos_gpu.actions.checkpoint", "preempt", fault="end", means=means)
    return experiment(told, *over("end"), change=change)


@contextmanager
def lacking(site: Site, role: str, resource: str) -> Iterator[None]:
    """Take what a role says of a resource away."""
    granted = site.lab.get(role)["rules"]
    site.merge(role, {"rules": [rule for rule in granted if rule["resources"] != [resource]]})
    try:
        yield
    finally:
        site.merge(role, {"rules": granted})


def test_every_means_of_the_api_has_its_rights() -> None:
    assert set(INJECTOR_RIGHTS_BY) == set(BY_API)
    assert {right for rights in INJECTOR_RIGHTS_BY.values() for right in rights} == set(INJECTOR_RIGHTS)


@pytest.mark.parametrize(
    ("means", "resource", "verb"), [("evict", "pods/eviction", "create"), ("delete", "pods", "delete")]
)
def test_a_right_that_the_injector_lacks_is_refused_beforehand(
    site: Site, tmp_path: Path, means: str, resource: str, verb: str
) -> None:
    made = ending(tmp_path, means)
    code, text = plan(site, made)
    assert code == 0, text
    assert f"{verb} {resource} in namespace chaos-gpu, by ServiceAccount chaos-gpu-injector" in text
    with lacking(site, ROLE, resource), unchanged(site):
        ended = site.run(made)
        check_refused(ended, f"ServiceAccount chaos-gpu-injector may not {verb} {resource}")
        assert "chaos-gpu install" in ended.guard["refused"]["remedy"]
        assert plan(site, made)[0] == 4


def test_who_may_not_ask_is_refused_too_and_who_was_installed_may(site: Site, tmp_path: Path) -> None:
    runner = str(kubeconfig_of(site, "chaos-gpu-runner", tmp_path))
    made = ending(tmp_path, "evict")
    assert plan(site, made, KUBECONFIG=runner)[0] == 0
    with lacking(site, RUNNERS, "subjectaccessreviews"):
        code, text = plan(site, made, KUBECONFIG=runner)
    assert code == 4, text
    assert "cannot be asked" in text


def test_a_fault_whose_injector_needs_no_right_asks_for_none(site: Site) -> None:
    with lacking(site, ROLE, "pods"), lacking(site, ROLE, "pods/eviction"):
        code, text = plan(site, experiment())
    assert code == 0, text
    assert "by ServiceAccount" not in text
