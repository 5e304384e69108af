"""The rules that make an object of right shape a valid one: names, sizes, what may not change. Pure; answers 422."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from chaos_gpu.lab.apiserver.resources import CRDS, EVENTS, JOBS, NAMESPACES, PODS, Key, Resource
from chaos_gpu.lab.apiserver.selectors import KEY, VALUE
from chaos_gpu.lab.apiserver.shapes import RBAC
from chaos_gpu.lab.apiserver.status import Json, cause, invalid

MAX_DATA_BYTES = 1 << 20  # of a ConfigMap or Secret
MAX_ANNOTATIONS_BYTES = 256 << 10  # keys and values of one object
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_LABEL_1035 = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(rf"(?=.{{1,253}}\Z){_LABEL.replace('{0,61}', '*')}(?:\.{_LABEL.replace('{0,61}', '*')})*")
_PATH_SEGMENT = re.compile(r"(?!\.\.?\Z)[^/%]{1,253}")
_NAME_RULES = {
    "label": (_DNS_LABEL, "a lowercase RFC 1123 label: a-z, 0-9, '-', at most 63 characters"),
    "label1035": (_DNS_LABEL_1035, "a lowercase RFC 1035 label: a-z, 0-9, '-', first a letter, at most 63 characters"),
    "subdomain": (_DNS_SUBDOMAIN, "a lowercase RFC 1123 subdomain: a-z, 0-9, '-', '.', at most 253 characters"),
    "segment": (_PATH_SEGMENT, "usable as one segment of a URL path"),
}
_DATA_KEY = re.compile(r"(?!\.\.)[-._a-zA-Z0-9]{1,253}")
Causes = Iterator[Json]


def name_rule(resource: Resource) -> str:
    """Return which rule names of this resource follow."""
    if resource.group == RBAC:
        return "segment"
    if resource.key == NAMESPACES:
        return "label"
    return "label1035" if resource.key == ("", "services") else "subdomain"


def check_new(resource: Resource, obj: Json) -> None:
    """Check an object that is to be made.

    Raises:
        StatusError: 422 with every rule that it breaks.
    """
    _raise_if(resource, obj, [*_names(resource, obj), *_always(resource, obj), *_at_birth(resource, obj)])


def check_changed(resource: Resource, old: Json, new: Json) -> None:
    """Check what an object is to become.

    Raises:
        StatusError: 422 with every rule that it breaks.
    """
    _raise_if(resource, new, [*_always(resource, new), *_frozen(resource, old, new), *_no_new_finalizers(old, new)])


def _raise_if(resource: Resource, obj: Json, causes: list[Json]) -> None:
    if causes:
        raise invalid(resource.kind, resource.group, obj["metadata"].get("name", ""), causes)


def _names(resource: Resource, obj: Json) -> Causes:
    pattern, words = _NAME_RULES[name_rule(resource)]
    name = obj["metadata"].get("name", "")
    if not name:
        yield cause("FieldValueRequired", "name or generateName is required", "metadata.name")
    elif not pattern.fullmatch(name):
        yield cause("FieldValueInvalid", f"Invalid value: {name!r}: must be {words}", "metadata.name")


def _always(resource: Resource, obj: Json) -> Causes:
    meta = obj["metadata"]
    yield from _labels(meta.get("labels") or {}, "metadata.labels")
    annotations = meta.get("annotations") or {}
    yield from (_bad_key(k, "metadata.annotations") for k in annotations if not KEY.fullmatch(k.lower()))
    if _bytes(annotations.items()) > MAX_ANNOTATIONS_BYTES:
        yield cause("FieldValueTooLong", f"may not be more than {MAX_ANNOTATIONS_BYTES} bytes", "metadata.annotations")
    for finalizer in meta.get("finalizers") or ():
        if not KEY.fullmatch(finalizer):
            yield cause("FieldValueInvalid", f"Invalid value: {finalizer!r}", "metadata.finalizers")
    yield from _ALWAYS.get(resource.key, _nothing)(obj)


def _labels(labels: dict[str, str], field: str) -> Causes:
    for key, value in labels.items():
        if not KEY.fullmatch(key):
            yield _bad_key(key, field)
        if not VALUE.fullmatch(value):
            words = "at most 63 letters, digits, '-', '_', '.', first and last a letter or digit"
            yield cause("FieldValueInvalid", f"Invalid value: {value!r}: must be {words}", field)


def _bad_key(key: str, field: str) -> Json:
    return cause("FieldValueInvalid", f"Invalid value: {key!r}: must be a name with an optional DNS prefix", field)


def _bytes(pairs: Iterable[tuple[str, str]]) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for pair in pairs for text in pair)


def _nothing(_obj: Json) -> Causes:
    yield from ()


def _data(obj: Json) -> Causes:
    size = 0
    for part in ("data", "binaryData"):
        size += _bytes((obj.get(part) or {}).items())
        for key in obj.get(part) or ():
            if not _DATA_KEY.fullmatch(key):
                yield cause("FieldValueInvalid", f"Invalid value: {key!r}: letters, digits, '-', '_', '.'", part)
    if size > MAX_DATA_BYTES:
        yield cause("FieldValueTooLong", f"Too long: may not be more than {MAX_DATA_BYTES} bytes", "data")


def _pod(obj: Json) -> Causes:
    yield from pod_spec(obj.get("spec") or {}, "spec", ("Always", "OnFailure", "Never"))


def pod_spec(spec: Json, field: str, policies: tuple[str, ...]) -> Causes:
    """Yield what is wrong with a pod's spec, or with that of a template."""
    if not spec.get("containers"):
        yield cause("FieldValueRequired", "Required value", f"{field}.containers")
    seen: set[str] = set()
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            yield from _container(container, f"{field}.{part}[{index}]", seen)
    if spec.get("restartPolicy", policies[0]) not in policies:
        message = f"Unsupported value: {spec['restartPolicy']!r}: supported values: {', '.join(policies)}"
        yield cause("FieldValueNotSupported", message, f"{field}.restartPolicy")
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        yield cause("FieldValueInvalid", "must not be negative", f"{field}.terminationGracePeriodSeconds")
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for index, container in enumerate(spec.get("containers") or ()):
        for mount in container.get("volumeMounts") or ():
            if mount.get("name") not in volumes:
                where = f"{field}.containers[{index}].volumeMounts"
                yield cause("FieldValueNotFound", f"Not found: {mount.get('name')!r}", where)


def _container(container: Json, field: str, seen: set[str]) -> Causes:
    name = container.get("name", "")
    if not _DNS_LABEL.fullmatch(name):
        yield cause(
            "FieldValueInvalid", f"Invalid value: {name!r}: must be a lowercase RFC 1123 label", f"{field}.name"
        )
    if name in seen:
        yield cause("FieldValueDuplicate", f"Duplicate value: {name!r}", f"{field}.name")
    seen.add(name)
    if not container.get("image"):
        yield cause("FieldValueRequired", "Required value", f"{field}.image")
    for variable in container.get("env") or ():
        if not variable.get("name") or "=" in variable["name"]:
            yield cause("FieldValueInvalid", f"Invalid value: {variable.get('name')!r}", f"{field}.env")


def _workload(obj: Json) -> Causes:
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not spec.get("selector"):
        yield cause("FieldValueRequired", "Required value", "spec.selector")
    elif not wanted.items() <= labels.items():
        yield cause("FieldValueInvalid", "the selector does not match the template's labels", "spec.template.metadata")
    if spec.get("replicas", 0) < 0:
        yield cause("FieldValueInvalid", "must not be negative", "spec.replicas")
    yield from pod_spec(template.get("spec") or {}, "spec.template.spec", ("Always",))


def _job(obj: Json) -> Causes:
    spec = (obj.get("spec") or {}).get("template", {}).get("spec") or {}
    yield from pod_spec(spec, "spec.template.spec", ("OnFailure", "Never"))
    if "restartPolicy" not in spec:
        yield cause("FieldValueRequired", "Required value: OnFailure or Never", "spec.template.spec.restartPolicy")


def _budget(obj: Json) -> Causes:
    spec = obj.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield cause("FieldValueInvalid", "minAvailable and maxUnavailable exclude each other", "spec")
    for field in ("minAvailable", "maxUnavailable"):
        value = spec.get(field, 0)
        if isinstance(value, str) and not re.fullmatch(r"\d{1,3}%", value):
            yield cause(
                "FieldValueInvalid", f"Invalid value: {value!r}: a whole number or a percentage", f"spec.{field}"
            )


def _definition(obj: Json) -> Causes:
    spec = obj["spec"]
    names = spec["names"]
    if obj["metadata"].get("name") != f"{names['plural']}.{spec['group']}":
        yield cause("FieldValueInvalid", 'must be spec.names.plural+"."+spec.group', "metadata.name")
    if spec["scope"] not in ("Namespaced", "Cluster"):
        yield cause("FieldValueNotSupported", "supported values: Cluster, Namespaced", "spec.scope")
    if "." not in spec["group"] or not _DNS_SUBDOMAIN.fullmatch(spec["group"]):
        yield cause("FieldValueInvalid", "must be a domain with at least one dot", "spec.group")
    if not _DNS_LABEL.fullmatch(names["plural"]):
        yield cause("FieldValueInvalid", "must be a lowercase RFC 1123 label", "spec.names.plural")
    if sum(1 for v in spec["versions"] if v.get("storage")) != 1:
        yield cause("FieldValueInvalid", "must have exactly one version marked as storage version", "spec.versions")


def _at_birth(resource: Resource, obj: Json) -> Causes:
    if resource.key == EVENTS:
        about = (obj.get("involvedObject") or {}).get("namespace") or "default"
        if about != obj["metadata"]["namespace"]:
            message = f"Invalid value: {about!r}: does not match the event's namespace"
            yield cause("FieldValueInvalid", message, "involvedObject.namespace")
    if resource.group == RBAC and resource.plural.endswith("bindings") and not obj.get("roleRef", {}).get("name"):
        yield cause("FieldValueRequired", "Required value", "roleRef.name")


def _frozen(resource: Resource, old: Json, new: Json) -> Causes:
    if old.get("immutable") and any(old.get(p) != new.get(p) for p in ("data", "binaryData", "immutable")):
        yield cause("FieldValueForbidden", "may not change when `immutable` is set", "data")
    if resource.key == PODS and _fixed_part(old) != _fixed_part(new):
        yield cause("FieldValueForbidden", f"pod updates may not change fields other than {_MAY_CHANGE}", "spec")
    for path in _FROZEN.get(resource.key, ()):
        if _dig(old, path) != _dig(new, path):
            yield cause("FieldValueInvalid", "field is immutable", path)


_MAY_CHANGE = "containers' image, activeDeadlineSeconds, tolerations (only additions), schedulingGates (only removals)"


def _fixed_part(pod: Json) -> Json:
    spec = {k: v for k, v in (pod.get("spec") or {}).items() if k not in ("activeDeadlineSeconds", "tolerations")}
    spec.pop("schedulingGates", None)
    for part in ("containers", "initContainers"):
        if part in spec:
            spec[part] = [{k: v for k, v in container.items() if k != "image"} for container in spec[part]]
    return spec


def _no_new_finalizers(old: Json, new: Json) -> Causes:
    added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
    if added and old["metadata"].get("deletionTimestamp"):
        message = f"no new finalizers can be added once the object is being deleted: {sorted(added)}"
        yield cause("FieldValueForbidden", message, "metadata.finalizers")


def _dig(obj: Any, path: str) -> Any:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


_ALWAYS: dict[Key, Callable[[Json], Causes]] = {
    ("", "configmaps"): _data,
    ("", "secrets"): _data,
    PODS: _pod,
    ("apps", "deployments"): _workload,
    ("apps", "replicasets"): _workload,
    ("apps", "statefulsets"): _workload,
    ("apps", "daemonsets"): _workload,
    JOBS: _job,
    ("policy", "poddisruptionbudgets"): _budget,
    CRDS: _definition,
}
_FROZEN: dict[Key, tuple[str, ...]] = {
    ("apps", "deployments"): ("spec.selector",),
    ("apps", "replicasets"): ("spec.selector",),
    ("apps", "daemonsets"): ("spec.selector",),
    ("apps", "statefulsets"): ("spec.selector", "spec.serviceName", "spec.volumeClaimTemplates"),
    JOBS: ("spec.selector", "spec.template", "spec.completionMode"),
    ("", "secrets"): ("type",),
    ("", "services"): ("spec.clusterIP",),
    (RBAC, "rolebindings"): ("roleRef",),
    (RBAC, "clusterrolebindings"): ("roleRef",),
    ("scheduling.k8s.io", "priorityclasses"): ("value",),
    CRDS: ("spec.group", "spec.scope", "spec.names.plural", "spec.names.kind"),
}
