"""What is not safe or not sound is refused before anything runs: exit 4, reason and remedy, and nothing is changed."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.engine.site import Ended, Json, Site, activity, experiment, guard, inject, over, unchanged

SECRET = "s3cr3t-t0ken-value"


class Case(NamedTuple):
    """One way to get it wrong, and what must be said about it."""

    name: str
    says: str
    experiment: Json
    env: dict[str, str] = {}
    flags: tuple[str, ...] = ()


WHOLE_NUMBER = "activity '.*': code: .*valid integer"


def check_refused(ended: Ended, says: str, *secrets: str) -> None:
    """Exit 4 with reason and remedy; no activity ran; none of the secrets is shown anywhere."""
    assert ended.result.exit_code == 4, ended.text
    refused = ended.guard["refused"]
    assert re.search(says, refused["reason"]), refused
    assert len(refused["remedy"]) > 10, refused
    assert ended.guard["run"] == ""
    assert ended.journal["run"] == []
    assert refused["reason"].splitlines()[0] in ended.text
    for file in (ended.process.output, ended.directory / "journal.json", ended.directory / "chaostoolkit.log"):
        for secret in secrets:
            assert secret not in file.read_text(), file


def method(**arguments: Any) -> Json:
    return experiment(inject(**arguments), *over(arguments.get("fault", "xid-13")))


def at(*path: str | int, value: Any) -> Callable[[Json], None]:
    """Make a change of an experiment: set a value at a path."""

    def change(found: Any) -> None:
        for key in path[:-1]:
            found = found[key]
        found[path[-1]] = value

    return change


def k8s(module: str, func: str, /, **arguments: Any) -> Json:
    return experiment(activity("action", "theirs", f"chaosk8s.{module}.actions", func, **arguments))


ALWAYS = ("--rollback-strategy", "always")
STRATEGIES = [
    Case("rollbacks by flag", "rollback strategy is default", experiment(), {}, ("--rollback-strategy", "default")),
    Case("rollbacks never by flag", "rollback strategy is never", experiment(), {}, ("--rollback-strategy", "never")),
    Case(
        "rollbacks on deviation by file",
        "rollback strategy is deviated",
        experiment(change=at("runtime", "rollbacks", "strategy", value="deviated")),
    ),
    Case("no runtime", "rollback strategy is default", experiment(change=lambda made: made.pop("runtime"))),
    Case(
        "hypothesis by flag",
        "hypothesis strategy is after-method-only",
        experiment(),
        {},
        ("--hypothesis-strategy", "after-method-only"),
    ),
    Case(
        "hypothesis by file",
        "hypothesis strategy is skip",
        experiment(change=at("runtime", "hypothesis", value={"strategy": "skip"})),
    ),
    Case("continuous hypothesis", "continuously", experiment(), {}, ("--hypothesis-strategy", "continuously")),
    *(
        Case(f"dry {what}", "dry run", experiment(), {}, ("--dry", what))
        for what in ("activities", "actions", "probes")
    ),
]
INPUTS = [
    Case("no context", "no cluster named", experiment(), {"CHAOS_GPU_CONTEXT": "-"}),
    Case("unknown context", "context 'elsewhere'", experiment(), {"CHAOS_GPU_CONTEXT": "elsewhere"}),
    Case("in-cluster, outside of one", "in-cluster", experiment(), {"CHAOS_GPU_CONTEXT": "in-cluster"}),
    Case("missing kubeconfig", "context 'lab' cannot be loaded", experiment(), {"KUBECONFIG": "/nowhere/kubeconfig"}),
    Case("empty selector", "selector is empty", experiment(), {"CHAOS_GPU_SELECTOR": " "}),
    Case("selector without match", "no node matches 'a=b'", experiment(), {"CHAOS_GPU_SELECTOR": "a=b"}),
    Case("malformed selector", "selector", experiment(), {"CHAOS_GPU_SELECTOR": "a in (b"}),
    Case("bad run id", "run id 'Not A Label'", experiment(), {"CHAOS_GPU_RUN": "Not A Label"}),
    Case("long run id", "run id", experiment(), {"CHAOS_GPU_RUN": "a" * 33}),
    Case("negative window", "cordon_s", experiment(), {"CHAOS_GPU_CORDON_S": "-1"}),
    Case("window that is no number", "cordon_s", experiment(change=at("configuration", "cordon_s", value="soon"))),
    Case("window that is not a number", "cordon_s", experiment(), {"CHAOS_GPU_CORDON_S": "nan"}),
    Case("window without end", "uncordon_s", experiment(), {"CHAOS_GPU_UNCORDON_S": "inf"}),
    Case("code 0", r"\b0\b", method(code=0)),
    Case("code 9999", "9999", method(code=9999)),
    Case("code as text", WHOLE_NUMBER, method(code="48")),
    Case("code true", WHOLE_NUMBER, method(code=True)),
    Case("code with a fraction", WHOLE_NUMBER, method(code=48.5)),
    Case("no code", WHOLE_NUMBER, method(code=None)),
    Case("wrong form", "'fancy'", method(form="fancy")),
    Case("form that is no text", "form", method(form=["process"])),
    Case("unknown node", "no node 'gpu-node-9'", method(node="gpu-node-9")),
    Case("node that is no name", "not a node's name", method(node="../pods")),
    Case("node that is no text", "node", method(node=["gpu-node-0"])),
    Case("unknown node by environment", "no node 'nowhere'", experiment(), {"CHAOS_GPU_NODE": "nowhere"}),
    Case("GPU 8", "no GPU 8", method(gpu="8")),
    Case("malformed GPU", "'first' names no GPU", method(gpu="first")),
    Case("malformed UUID", "names no GPU", method(gpu="GPU-1234")),
    Case("GPU that is no text", "gpu", method(gpu={"index": 0})),
    Case("unresolved argument", r"unresolved \$\{", method(node="${target}")),
    Case("unresolved configuration", r"unresolved \$\{", experiment(), {"CHAOS_GPU_NODE": "${target}"}),
    Case(
        "unresolved in the hypothesis",
        r"unresolved \$\{",
        experiment(
            change=lambda made: made["steady-state-hypothesis"]["probes"].append(
                {
                    **activity("probe", "hold", "chaos_gpu.probes.platform", "criteria_hold", criteria=["${which}"]),
                    "tolerance": 1,
                }
            )
        ),
    ),
    Case("fault name used twice", "'xid-13' is used twice", experiment(inject(), inject(), *over())),
    Case("fault that nothing injects", "no activity injects fault 'xid-49'", experiment(inject(), *over("xid-49"))),
    Case("bad fault name", "fault name 'Xid 13'", method(fault="Xid 13")),
    Case("long fault name", "fault name", method(fault="x" * 21)),
    Case("fault name that is no text", "fault", method(fault=13)),
    Case("unknown guard argument", "guard: everything", experiment(everything=True)),
    Case("unknown remediation", "allow_remediation", experiment(allow_remediation=["explode"])),
    Case("no nodes allowed", "guard: nodes", experiment(nodes=0)),
    Case("share over one", "share_of_nodes", experiment(share_of_nodes=1.5)),
    Case("nodes as truth", "guard: nodes", experiment(nodes=True)),
    Case("cordoning not allowed", "may cordon a node", experiment(allow_remediation=[])),
    Case("raw 119", "raw Xid 119", method(code=119)),
    Case(
        "two nodes",
        "2 nodes would be touched, 1 may",
        experiment(inject(node="gpu-node-0"), *over(), inject("more", node="gpu-node-1"), *over("more")),
    ),
    Case(
        "two nodes of four are more than a tenth",
        "2 of 4 GPU nodes",
        experiment(
            inject(node="gpu-node-0"), *over(), inject("more", node="gpu-node-1"), *over("more"), nodes=2, gpus=2
        ),
    ),
    Case(
        "two GPUs",
        "2 GPUs would be touched, 1 may",
        experiment(
            inject(node="gpu-node-0", gpu="0"), *over(), inject("more", node="gpu-node-0", gpu="1"), *over("more")
        ),
    ),
    Case(
        "five times one GPU",
        "5 more would be over 4",
        experiment(
            *(inject(f"xid-{n}", node="gpu-node-0", gpu="0") for n in range(5)),
        ),
    ),
    Case("wrong environment", "cluster lab is 'lab'", experiment(), {"CHAOS_GPU_ENVIRONMENT": "production"}),
    Case("no environment", "which environment", experiment(), {"CHAOS_GPU_ENVIRONMENT": "-"}),
]
FOREIGN = [
    Case("cordon of all nodes", "names no target", k8s("node", "cordon_node")),
    Case("cordon with empty name", "names no target", k8s("node", "cordon_node", name="")),
    Case("cordon with blank selector", "names no target", k8s("node", "cordon_node", label_selector=" ")),
    Case("drain of all nodes", "names no target", k8s("node", "drain_nodes", count=1)),
    Case("deletion of nodes", "names no target", k8s("node", "delete_nodes", all=True)),
    Case("termination of pods", "names no target", k8s("pod", "terminate_pods", ns="team", all=True)),
    Case("commands in pods", "names no target", k8s("pod", "exec_in_pods", cmd="true", all=True)),
    Case("deletion of pods", "names no target", k8s("pod", "delete_pods", ns="team")),
    Case("a network policy on all pods", "names no target", k8s("networking", "deny_all_ingress", ns="team")),
    Case(
        "in the rollbacks",
        "names no target",
        experiment(
            change=lambda made: made["rollbacks"].append(
                activity("action", "theirs", "chaosk8s.node.actions", "uncordon_node")
            )
        ),
    ),
]


@pytest.mark.parametrize("case", [*STRATEGIES, *INPUTS, *FOREIGN], ids=lambda case: case.name)
def test_input(site: Site, case: Case) -> None:
    with unchanged(site):
        ended = site.run(case.experiment, *case.flags, **case.env)
    check_refused(ended, case.says, site.lab.url.rpartition("/")[2])


@pytest.mark.parametrize(
    "named",
    [
        k8s("node", "cordon_node", name="gpu-node-9"),
        k8s("pod", "terminate_pods", name_pattern="^train-", ns="nobody"),
        k8s("pod", "delete_pods", label_selector="app=nothing", ns="nobody"),
        k8s("networking", "remove_deny_all_ingress", ns="nobody"),
        k8s("service", "create_service_endpoint", spec_path="/nowhere.yaml"),
    ],
    ids=lambda made: made["method"][0]["provider"]["func"],
)
def test_an_activity_with_a_target_is_let_in(site: Site, named: Json) -> None:
    code, text = plan(site, named)
    assert code == 0, text


def plan(site: Site, made: Json, **env: str) -> tuple[int, str]:
    """Run `chaos-gpu plan`: the same checks as the guard's."""
    file = site.place() / "experiment.json"
    file.write_text(json.dumps(made))
    return site.cli("plan", str(file), **env)


# --- the guard itself ------------------------------------------------------------------------------------------------


def test_without_a_guard_nothing_acts(site: Site) -> None:
    with unchanged(site):
        ended = site.run(experiment(change=at("controls", value=[])))
    assert "chaos_gpu" not in ended.journal
    assert ended.result.exit_code == 4
    assert "no guard has armed this experiment" in ended.text or ended.journal["run"] == []


def test_a_guard_on_an_activity_arms_nothing(site: Site) -> None:
    def late(made: Json) -> None:
        made["method"][0]["controls"] = made.pop("controls")

    with unchanged(site):
        ended = site.run(experiment(change=late))
    assert ended.result.exit_code == 4
    assert ended.journal["status"] != "completed" or ended.journal["deviated"] or not ended.journal["run"]


@pytest.mark.parametrize("change", [at("controls", value=[]), at("method", 0, "controls", value=[guard()])])
def test_chaos_gpu_run_tells_a_missing_or_late_guard_before_it_starts(
    site: Site, change: Callable[[Json], None], tmp_path: Path
) -> None:
    made = experiment(change=change)
    if made["controls"]:
        made["controls"] = []
    file = tmp_path / "experiment.json"
    file.write_text(json.dumps(made))
    with unchanged(site):
        code, text = site.cli("run", str(file))
    assert code == 4
    assert "guard" in text


# --- the way to the cluster ------------------------------------------------------------------------------------------


def kubeconfig(site: Site, place: Path, **user: Any) -> Path:
    """Write a kubeconfig for the lab with another user."""
    found = yaml.safe_load(site.lab.kubeconfig.read_text())
    found["users"][0]["user"] = user
    file = place / "kubeconfig"
    file.write_text(yaml.safe_dump(found))
    return file


BROKEN: dict[str, bytes] = {
    "empty": b"",
    "binary": bytes(range(256)),
    "list": f"- {SECRET}\n".encode(),
    "text": SECRET.encode(),
    "half": f"users:\n- name: a\n  user: {{token: {SECRET}\ncontexts: [".encode(),
    "tab": f"users:\n\t- token: {SECRET}\n".encode(),
    "no users": b"apiVersion: v1\nkind: Config\ncontexts: [{name: lab, context: {cluster: c}}]\nclusters: []\n",
    "no lists": b"apiVersion: v1\nkind: Config\ncurrent-context: lab\ncontexts: 3\n",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_broken_kubeconfig(site: Site, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_bytes(content)
    with unchanged(site):
        ended = site.run(experiment(), KUBECONFIG=str(file))
    check_refused(ended, "context 'lab' cannot be loaded", SECRET)


def test_a_directory_as_kubeconfig(site: Site, tmp_path: Path) -> None:
    check_refused(site.run(experiment(), KUBECONFIG=str(tmp_path)), "context 'lab' cannot be loaded")


@pytest.mark.parametrize("key", [base64.b64encode(SECRET.encode()).decode(), f"{SECRET}="])
def test_unreadable_certificate(site: Site, key: str, tmp_path: Path) -> None:
    file = kubeconfig(site, tmp_path, **{"client-certificate-data": key, "client-key-data": key})
    file.write_text(file.read_text().replace("http:", "https:"))  # plain ones need no certificate
    check_refused(site.run(experiment(), KUBECONFIG=str(file)), "context 'lab' cannot be loaded", SECRET, key)


def test_unreadable_authority(site: Site, tmp_path: Path) -> None:
    file = kubeconfig(site, tmp_path)
    found = yaml.safe_load(file.read_text())
    cluster = found["clusters"][0]["cluster"]
    cluster["server"] = cluster["server"].replace("http:", "https:")
    cluster["certificate-authority-data"] = base64.b64encode(SECRET.encode()).decode()
    file.write_text(yaml.safe_dump(found))
    check_refused(site.run(experiment(), KUBECONFIG=str(file)), "context 'lab' cannot be loaded", SECRET)


def test_expired_token(site: Site, tmp_path: Path) -> None:
    with unchanged(site):
        ended = site.run(experiment(), KUBECONFIG=str(kubeconfig(site, tmp_path, token=SECRET)))
    check_refused(ended, "Unauthorized|401", SECRET)
    assert "log in again" in ended.guard["refused"]["remedy"]


def test_token_with_a_newline(site: Site, tmp_path: Path) -> None:
    file = kubeconfig(site, tmp_path, token=f"{SECRET}\nX-More: yes")
    with unchanged(site):
        ended = site.run(experiment(), KUBECONFIG=str(file))
    check_refused(ended, "", SECRET)


def test_credential_plugin_that_fails(site: Site, tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere/login", "args": [SECRET]}
    file = kubeconfig(site, tmp_path, exec={**plugin, "interactiveMode": "Never"})
    file.write_text(file.read_text().replace(site.lab.url, site.lab.facts["pod_url"]))  # where a token is needed
    with unchanged(site):
        ended = site.run(experiment(), KUBECONFIG=str(file))
    check_refused(ended, "Unauthorized|401", SECRET)
