"""Label and field selectors: text or objects in, predicates over objects out. Pure."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from chaos_gpu.lab.apiserver.status import Json, bad_request

Predicate = Callable[[Json], bool]

_TERM = re.compile(
    r"""\s* (?: (?P<absent>!) \s* (?P<missing>[^\s!=,()<>]+)
      | (?P<key>[^\s!=,()<>]+) \s* (?:
          (?P<op>==?|!=) \s* (?P<value>[^\s!=,()<>]*)
        | (?P<order>[<>]) \s* (?P<number>-?\d+)
        | (?P<set>in|notin) \s* \( (?P<values>[^()]*) \)
        )? ) \s* (?:,|$)""",
    re.VERBOSE,
)
_FIELD_TERM = re.compile(r"([^=!,]+)(==?|!=)((?:[^,\\=]|\\.)*)(?:,|$)")
KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class Requirement(NamedTuple):
    """One condition on one label: `key op values`."""

    key: str
    op: str  # in, notin, exists, absent, gt, lt
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Say whether these labels meet the condition; a missing label meets `notin`."""
        have = labels.get(self.key)
        if self.op == "in":
            return have is not None and have in self.values
        if self.op == "notin":
            return have is None or have not in self.values
        if self.op in ("gt", "lt"):
            return self._in_order(have)
        return (have is not None) == (self.op == "exists")

    def _in_order(self, have: str | None) -> bool:
        if have is None or not re.fullmatch(r"-?\d{1,19}", have):
            return False
        (bound,) = self.values
        return int(have) > int(bound) if self.op == "gt" else int(have) < int(bound)


def parse_labels(text: str) -> list[Requirement]:
    """Parse `a=b,c!=d,e in (f,g),h,!i`.

    Raises:
        StatusError: 400, not a selector.
    """
    terms: list[Requirement] = []
    at = 0
    while at < len(text) and text.strip():
        match = _TERM.match(text, at)
        if match is None or (match.end() == len(text) and text.rstrip().endswith(",")):
            raise bad_request(f"unable to parse the label selector {text!r} at position {at}")
        terms.append(_requirement(match))
        at = match.end()
    for term in terms:
        _check_term(term)
    return terms


def _requirement(match: re.Match[str]) -> Requirement:
    if match["absent"]:
        return Requirement(match["missing"], "absent")
    if match["set"]:
        return Requirement(match["key"], match["set"], frozenset(v.strip() for v in match["values"].split(",")))
    if match["order"]:
        return Requirement(match["key"], "gt" if match["order"] == ">" else "lt", frozenset({match["number"]}))
    if match["op"]:
        return Requirement(match["key"], "notin" if match["op"] == "!=" else "in", frozenset({match["value"]}))
    return Requirement(match["key"], "exists")


def _check_term(term: Requirement) -> None:
    if not KEY.fullmatch(term.key):
        raise bad_request(f"unable to parse the label selector: {term.key!r} is not a label key")
    for value in term.values if term.op in ("in", "notin") else ():
        if not VALUE.fullmatch(value):
            raise bad_request(f"unable to parse the label selector: {value!r} is not a label value")


def match_labels(requirements: list[Requirement]) -> Predicate:
    """Return a predicate over objects."""
    return lambda obj: all(r.holds(obj["metadata"].get("labels") or {}) for r in requirements)


def selector_of(selector: Mapping[str, Any] | None) -> list[Requirement]:
    """Read a LabelSelector object of valid shape; an empty one matches everything."""
    selector = selector or {}
    wanted = [Requirement(k, "in", frozenset({v})) for k, v in (selector.get("matchLabels") or {}).items()]
    ops = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
    for term in selector.get("matchExpressions") or ():
        wanted.append(Requirement(term["key"], ops[term["operator"]], frozenset(term.get("values") or ())))
    return wanted


def parse_fields(text: str, supported: Mapping[str, str]) -> list[tuple[str, bool, str]]:
    r"""Parse `spec.nodeName=a,status.phase!=b` into (path, equal, value); `\,`, `\=` and `\\` are escapes.

    Args:
        text: the selector.
        supported: the fields that this resource can be selected by, and where each lies in the object.

    Raises:
        StatusError: 400, not a selector, or a field that is not supported.
    """
    terms = []
    at = 0
    while at < len(text):
        match = _FIELD_TERM.match(text, at)
        if match is None:
            raise bad_request(f"invalid field selector {text!r}: it needs terms like a=b, a==b, a!=b")
        label, op, value = match.groups()
        if label.strip() not in supported:
            raise bad_request(f"field label not supported: {label.strip()}")
        terms.append((supported[label.strip()], op != "!=", re.sub(r"\\(.)", r"\1", value)))
        at = match.end()
    return terms


def match_fields(terms: list[tuple[str, bool, str]]) -> Predicate:
    """Return a predicate over objects; a missing field counts as empty."""
    return lambda obj: all((field_text(obj, path) == value) == equal for path, equal, value in terms)


def field_text(obj: Json, path: str) -> str:
    """Return the field at a dotted path as a selector sees it."""
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return _DEFAULTS.get(path, "")
    return str(value)


_DEFAULTS = {
    "spec.unschedulable": "false",
    "spec.hostNetwork": "false",
    "status.replicas": "0",
    "status.succeeded": "0",
}
