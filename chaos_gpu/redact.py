"""Take secrets out of what goes into a journal, a log or a report.

Evidence is made of what clusters say about themselves, so it may hold anything: tokens, kubeconfig data, environment
variables, addresses with passwords in them. Names of secrets are kept, their values are not.
"""

import re
from typing import Any

MASK = "***"

_SENSITIVE = (
    r"(?:password|passwd|passphrase|pwd|secret|token|authorization|credentials?|cookie|auth|dockerconfigjson|dockercfg"
    r"|(?:api|access|private|client|signing|encryption|secret|account)[-_ ]?key(?:[-_ ]?data)?"
    r"|(?:certificate[-_ ]?authority|client[-_ ]?certificate)[-_ ]?data)"
)
_SENSITIVE_NAME = re.compile(rf"(?:.*[^a-z])?{_SENSITIVE}", re.ASCII | re.IGNORECASE | re.DOTALL)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])", re.ASCII)

_VALUE = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"',;&})\]]+)"""
_IN_TEXT: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(-----BEGIN [A-Z0-9 ]+-----).*?(?:(-----END [A-Z0-9 ]+-----)|\Z)", re.DOTALL), rf"\1{MASK}\2"),
    (re.compile(r"\b(bearer|basic)\s+[^\s\"',;]+", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?"), MASK),
    (re.compile(r"\b(?:gh[opsur]_|github_pat_|glpat-|hf_|nvapi-|sk-|xox[a-z]-|AKIA)[\w-]{12,}"), MASK),
    (re.compile(r"(://)[^/\s@\"']+@"), rf"\1{MASK}@"),
    (re.compile(r"(https?://(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?/)[\w-]{16,}"), rf"\1{MASK}"),
    (
        re.compile(
            rf"""((?<![a-z0-9])(?:[a-z0-9]{{1,40}}[-_.]){{0,8}}{_SENSITIVE}["']?\s*[=:]\s*(?:bearer\s+|basic\s+)?){_VALUE}""",
            re.ASCII | re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (re.compile(rf"(--?(?:[a-z]+-)*{_SENSITIVE}\s+){_VALUE}", re.ASCII | re.IGNORECASE), rf"\1{MASK}"),
)


def redact(value: Any) -> Any:
    """Return the same JSON with the secrets masked; doing it twice changes nothing more.

    Args:
        value: what `json` can write; other objects are returned as they are.
    """
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return _redact_mapping(value)
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    return value


def redact_text(text: str) -> str:
    """Mask what looks like a secret inside a text."""
    for pattern, mask in _IN_TEXT:
        text = pattern.sub(mask, text)
    return text


def is_secret_name(name: str) -> bool:
    """Say whether a key, variable or field of this name holds a secret: `HF_TOKEN` does, `tokens_per_s` does not."""
    return _SENSITIVE_NAME.fullmatch(_CAMEL.sub("_", name)) is not None


def _redact_mapping(mapping: dict[Any, Any]) -> dict[Any, Any]:
    # An environment variable in a pod's spec: {"name": "DB_PASSWORD", "value": "…"}.
    named = mapping.get("name")
    secret_value = isinstance(named, str) and is_secret_name(named)
    return {key: MASK if _holds(key, item, secret_value) else redact(item) for key, item in mapping.items()}


def _holds(key: Any, item: Any, secret_value: bool) -> bool:
    if item is None or isinstance(item, bool) or item == "":
        return False
    return isinstance(key, str) and (is_secret_name(key) or (secret_value and key == "value"))
