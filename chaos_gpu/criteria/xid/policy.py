"""What a platform should do about a code: take the node out of service, or leave it.

The reference policy is data (`policy.json`): codes on which everyone agrees, else NVIDIA's immediate action for the
code, else "unknown", which means contact support and so never "nothing". Sites put their own actions over it.
"""

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict

from chaos_gpu.criteria.xid.advice import recovery_action
from chaos_gpu.criteria.xid.catalog import catalogue
from chaos_gpu.errors import UsageError

DOCUMENT = "document"
"""Key under which a site's own policy names the document that says so."""

_RECOVERED = "NONE"
_CODE = re.compile(r"[1-9][0-9]{0,3}", re.ASCII)


class Action(StrEnum):
    """What the platform does to the node."""

    CORDON = "cordon"
    NONE = "none"


class Policy(BaseModel):
    """Codes and NVIDIA buckets with the action that each calls for, and the document they come from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    document: str
    codes: Mapping[int, Action]
    buckets: Mapping[str, Action]
    unknown: Action


class Expectation(BaseModel):
    """What a policy expects for one code, and why."""

    model_config = ConfigDict(frozen=True)

    code: int
    action: Action
    why: str
    document: str


@cache
def reference_policy() -> Policy:
    """Return the policy that ships with us."""
    return Policy.model_validate(json.loads(files(__package__).joinpath("policy.json").read_text(encoding="utf-8")))


def policy_with(overrides: Mapping[Any, Any] | None = None) -> Policy:
    """Put a site's own actions over the reference policy.

    Args:
        overrides: code → `cordon` or `none`, as configuration has it: codes may be numbers or text; `document` → the
            name of the site's document that says so, with its version.

    Raises:
        UsageError: not a code, or not an action.
    """
    policy = reference_policy()
    if not overrides:
        return policy
    own = dict(_override(code, action) for code, action in overrides.items() if code != DOCUMENT)
    own_document = overrides.get(DOCUMENT) or "the site's configuration"
    said = f"{own_document}, over: {policy.document}"
    return policy.model_copy(update={"codes": MappingProxyType({**policy.codes, **own}), "document": said})


def expected_action(code: int, policy: Policy | None = None, text: str = "") -> Expectation:
    """Say what the policy expects of a platform for a code; of a code nobody knows, the careful action.

    Args:
        code: of an Xid.
        policy: the site's, None for the reference policy.
        text: what the record says behind its code, if that is known: an Xid 154 may announce that all is well again.
    """
    policy = policy or reference_policy()
    known = catalogue().get(code)
    if known is not None and known.bucket == "XID_154" and recovery_action(text) == _RECOVERED:
        action, why = Action.NONE, f"this Xid {code} says that no recovery is needed any more"
    elif code in policy.codes:
        action, why = policy.codes[code], f"the policy names Xid {code}"
    elif known is not None and known.bucket in policy.buckets:
        action, why = policy.buckets[known.bucket], f"NVIDIA's immediate action for Xid {code} is {known.bucket}"
    else:
        action, why = policy.unknown, f"no action is published for Xid {code}: contact support"
    return Expectation(code=code, action=action, why=why, document=policy.document)


def _override(code: Any, action: Any) -> tuple[int, Action]:
    number = str(code)
    if _CODE.fullmatch(number) is None:
        raise UsageError(f"the policy's code {code!r} is not a number", remedy="write codes as 48 or '48'")
    if action not in list(Action):
        raise UsageError(f"the policy's action {action!r} for Xid {number}", remedy=f"one of: {', '.join(Action)}")
    return int(number), Action(action)
