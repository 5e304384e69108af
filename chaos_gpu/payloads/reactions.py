"""What the platform did to a node because of our record, read off the node itself.

The judges have their own reading of the same texts (criteria.attribution); a test holds the two together.
"""

import re
from typing import Any, Dict, List, Optional, Sequence

Object = Dict[str, Any]

CORDONED = "cordoned"
MARKER = re.compile(r"cgpu-[0-9a-z]{8}", re.ASCII)
PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([01][0-9a-f])(?:\.([0-7]))?", re.ASCII | re.IGNORECASE)


def trouble_of(node: Object, record: Object) -> Optional[Object]:
    """Return what on this node names our record: {node, uid, cordoned, keys, conditions}, or None.

    A target that is cordoned counts even where nothing says why: it was schedulable when the fault was injected.
    """
    meta = node["metadata"]
    places = {"labels": meta.get("labels") or {}, "annotations": meta.get("annotations") or {}}
    here = meta["name"] == record["node"]
    keys = [
        [place, name]
        for name in record["attribution"]
        for place, values in places.items()
        if names_ours(values.get(name, ""), record, here)
    ]
    conditions = [
        condition["type"]
        for condition in node.get("status", {}).get("conditions") or ()
        if is_raised(condition, record["conditions"])
        and names_ours("{} {}".format(condition.get("reason", ""), condition.get("message", "")), record, here)
    ]
    unschedulable = bool(node.get("spec", {}).get("unschedulable"))
    if not (keys or conditions or (here and unschedulable)):  # the target was schedulable before: that is ours to see
        return None
    values = {name: places[place][name] for place, name in keys}
    return {
        "node": meta["name"], "uid": meta["uid"], "keys": keys, "values": values, "conditions": conditions,
        "cordoned": unschedulable and bool(keys), "unexplained": unschedulable and not keys,
    }  # fmt: skip


def is_raised(condition: Object, watched: Sequence[str]) -> bool:
    """Say whether a node condition is one of a detector's and unhealthy; `Type=False` names one that is so at False."""
    name, status = condition["type"], condition.get("status")
    return (status == "True" and name in watched) or (f"{name}={status}" in watched)


def names_ours(text: str, record: Object, on_target: bool) -> bool:
    """Say whether a text names our record: by its marker, or by code and GPU where it bears no other run's marker.

    On another node than the target a PCI address proves nothing: machines of one kind have the same ones.
    """
    markers = MARKER.findall(text)
    if record["marker"] in markers:
        return True
    if markers or not names_code(text, record["code"]):
        return False
    uuid = record.get("gpu_uuid", "")
    if uuid and uuid.lower() in text.lower():
        return True
    return on_target and names_pci(text, record.get("pci", ""))


def names_code(text: str, code: int) -> bool:
    """Find the code as detectors write it: `Xid48`, `Xid (PCI:…): 48,`, `ErrorCode:48`, `"code": 48`, `{"48":true}`."""
    after_word = r"(?:xid|code|error)(?:\s*\([^)]*\))?\W{0,4}" + str(code) + r"(?![0-9]|\.[0-9])"
    return re.search(after_word + '|"' + str(code) + r'"\s*:', text, re.ASCII | re.IGNORECASE) is not None


def names_pci(text: str, pci: str) -> bool:
    """Say whether a text names this GPU's address, in any of the usual forms."""
    match = PCI.fullmatch(pci)
    if match is None:
        return False
    domain, bus, device, _ = match.groups()
    form = rf"(?<![0-9a-f])(?:0000)?{domain[-4:]}:{bus}:{device}(?:\.0)?(?![0-9a-f:]|\.[0-9a-f])"
    return re.search(form, text, re.ASCII | re.IGNORECASE) is not None


def describe(trouble: Object) -> str:
    """Say in one phrase what the platform did."""
    cordoned = trouble["cordoned"] or trouble["unexplained"]
    what = ([CORDONED] if cordoned else []) + ["condition " + name for name in trouble["conditions"]]
    return "{} {}".format(trouble["node"], " and ".join(what or ["marked"]))


def restoring_patch(trouble: Object) -> List[Object]:
    """Make the JSON patch that returns a node: same object, values still those that name our record."""
    patch = [{"op": "test", "path": "/metadata/uid", "value": trouble["uid"]}]
    if trouble["cordoned"]:
        patch += [
            {"op": "test", "path": "/spec/unschedulable", "value": True},
            {"op": "remove", "path": "/spec/unschedulable"},
        ]
    for place, name in trouble["keys"]:
        path = "/metadata/{}/{}".format(place, name.replace("~", "~0").replace("/", "~1"))
        patch += [{"op": "test", "path": path, "value": trouble["values"][name]}, {"op": "remove", "path": path}]
    return patch
