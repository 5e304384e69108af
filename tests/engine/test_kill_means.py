"""A training caught in the middle of a save and ended by the API server: it may finish its save, and that is said."""

import json
from pathlib import Path

import pytest

from chaos_gpu.lab.trainer.manifest import write_manifest
from chaos_gpu.payloads.eviction import BY_API
from tests.engine.site import Json, Site, activity, experiment, over

pytestmark = pytest.mark.timeout(180)


def caught(job: str, means: str) -> Json:
    def change(made: Json) -> None:
        made["configuration"]["job"] = job

    kill = activity("action", "kill", "chaos_gpu.actions.checkpoint", "kill_during_save", fault="kill", means=means)
    resumes = activity("probe", "resumes", "chaos_gpu.probes.job", "resumes", fault="kill")
    return experiment(kill, resumes, *over("kill"), change=change, criteria=["CKPT-01"])


ACCOUNT = "system:serviceaccount:chaos-gpu:chaos-gpu-injector"
REQUESTS = {"delete": "delete/pods", "force": "delete/pods", "evict": "create/pods/eviction"}


def asked_for(site: Site, pod: str) -> list[str]:
    """What the injector asked of the API server about a pod of the training."""
    lines = map(json.loads, (site.lab.root / "audit.jsonl").read_text().splitlines())
    ours = [line for line in lines if (line["name"], line["user"]) == (pod, ACCOUNT)]
    return ["/".join(filter(None, (line["verb"], line["resource"], line["subresource"]))) for line in ours]


@pytest.mark.parametrize("means", BY_API)
def test_who_is_ended_by_the_api_in_a_save_is_never_judged_as_killed_in_it(
    site: Site, tmp_path: Path, means: str
) -> None:
    ended = site.run(caught(str(write_manifest(tmp_path, [])), means))
    said = ended.output_of("kill")["output"]["text"]
    assert said.startswith(f"{means} of pod ")
    assert asked_for(site, said.split(":")[0].split()[-1]) == [REQUESTS[means]]
    first = next(each for each in ended.guard["verdicts"] if each["criterion"] == "CKPT-01")
    assert first["outcome"] == "inconclusive", first
    assert "went on until it ended" in first["reason"]
    assert first["evidence"]["kill"]["fraction"] == pytest.approx(0.5, abs=0.2)
    outcomes = {each["outcome"] for each in ended.guard["verdicts"]}
    assert means == "force" or "fail" not in outcomes, "what it has saved by its own end counts"
    assert ended.guard["recovery"]["open"] == []
