"""Xid 144-150 on NVLink 5: what NVIDIA's decode sheet says to an interrupt word and an error status.

The bits of the interrupt word moved with driver R575, and a record does not say which driver wrote it; so both readings
are given. Where the sheet has no line for the two words the answer is `NO_RULE`, which means: not known, ask NVIDIA.
"No rule" is never "no action". Source: NVIDIA's Xid catalogue workbook, NVLink 5 decode sheet (`nvlink5.tsv`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from chaos_gpu.criteria.xid.tables import read_table

NO_RULE = "NO_RULE"
CODES = range(144, 151)
GENERATIONS = ("lt_r575", "ge_r575")
"""Drivers before R575, and from it on."""

_TEXT = re.compile(
    r"(?P<subcode>[A-Z][A-Z0-9_/]{1,63})"
    r"(?: +(?P<severity>Fatal|Nonfatal|Non-fatal)\b(?: +XC[0-9]{1,2}(?: +i(?P<injected>[01])(?![0-9])"
    r"(?: +Link +(?P<link>-?[0-9]{1,3})(?![0-9])(?: *\((?P<words>[^)]*\)?))?)?)?)?)?",
    re.ASCII,
)
_PRINTED = re.compile(r"[A-Z][A-Z0-9_/]{1,63}", re.ASCII)
_WORD = re.compile(r" *0x(?:([0-9a-fA-F]{8})(?![^ )])|([0-9a-fA-F]{1,7})[ )])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the sheet, for one driver generation; masks and values are those of 32-bit words."""

    subcode: str
    mask: int
    value: int
    statuses: frozenset[int] | None
    """None: any status."""
    action: str
    severity: str

    def applies(self, intrinfo: int, status: int | None) -> bool:
        """Say whether this line is about these two words; an unknown status fits only where any does."""
        return intrinfo & self.mask == self.value and (self.statuses is None or status in self.statuses)


@dataclass(frozen=True, slots=True)
class Resolution:
    """The sheet's answer per driver generation: `SUBCODE=ACTION(severity)`, several joined by `;`, or `NO_RULE`."""

    lt_r575: str
    ge_r575: str
    action: str
    """The one action of the generation that has a rule; `NO_RULE` if none has one, or if they differ."""

    def as_json(self) -> dict[str, str]:
        """Return the two readings."""
        return {"lt_r575": self.lt_r575, "ge_r575": self.ge_r575}


UNRESOLVED = Resolution(NO_RULE, NO_RULE, NO_RULE)


@dataclass(frozen=True, slots=True)
class LinkError:
    """What an NVLink 5 record says; None is what it does not say, for instance because it was cut off."""

    subcode: str
    severity: str | None
    injected: bool | None
    """The `i` flag: the error was injected into the link hardware on purpose."""
    link: int | None
    """-1 where the driver does not know the link."""
    intrinfo: int | None
    status: int | None


def parse_link_error(text: str) -> LinkError | None:
    """Read the text behind code and process: `RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 …)`."""
    match = _TEXT.match(text)
    if match is None:
        return None
    subcode, severity, injected, link, words = match.groups()
    intrinfo, status = _two_words(words or "")
    return LinkError(
        subcode,
        severity,
        None if injected is None else injected == "1",
        None if link is None else int(link),
        intrinfo,
        status,
    )


@lru_cache(maxsize=1024)
def resolve(code: int, intrinfo: int | None, status: int | None) -> Resolution:
    """Look an error up for drivers before R575 and from R575 on.

    Args:
        code: 144 to 150; others have no rule.
        intrinfo: first word in parentheses; None if the record ends before it.
        status: second word; None likewise.
    """
    if intrinfo is None:
        return UNRESOLVED
    older, newer = ([rule for rule in sheet.get(code, ()) if rule.applies(intrinfo, status)] for sheet in (_sheets()))
    actions = {rule.action for rule in (*older, *newer)}
    return Resolution(_said(older), _said(newer), actions.pop() if len(actions) == 1 else NO_RULE)


@cache
def sample(code: int, generation: str) -> tuple[Rule, int, int]:
    """Return a rule of the sheet with an interrupt word and a status to which it applies, for one driver generation.

    Of several the one is taken whose words mean nothing to the other generation; of those a fatal one, and one that
    asks for something to be done.

    Args:
        code: 144 to 150.
        generation: one of `GENERATIONS`.
    """
    rules = _sheets()[GENERATIONS.index(generation)][code]
    found = [(rule, rule.value, min(rule.statuses or {0})) for rule in rules if _PRINTED.fullmatch(rule.subcode)]
    return min(found, key=lambda each: _ambiguity(code, generation, *each))


def _ambiguity(code: int, generation: str, rule: Rule, intrinfo: int, status: int) -> tuple[bool, ...]:
    readings = resolve(code, intrinfo, status)
    other = next(name for name in GENERATIONS if name != generation)
    tells_apart = readings.action == rule.action, readings.as_json()[other] == NO_RULE
    return tuple(not good for good in (*tells_apart, rule.severity == "Fatal", rule.action != "IGNORE"))


def _two_words(words: str) -> tuple[int | None, int | None]:
    first = _WORD.match(words)
    second = _WORD.match(words, first.end()) if first else None
    return _value(first), _value(second)


def _value(match: re.Match[str] | None) -> int | None:
    return None if match is None else int(match[1] or match[2], 16)


def _said(rules: list[Rule]) -> str:
    return ";".join(f"{rule.subcode}={rule.action}({rule.severity})" for rule in rules) or NO_RULE


@cache
def _sheets() -> tuple[dict[int, tuple[Rule, ...]], dict[int, tuple[Rule, ...]]]:
    return _sheet("lt_r575"), _sheet("ge_r575")


def _sheet(generation: str) -> dict[int, tuple[Rule, ...]]:
    rules: dict[int, tuple[Rule, ...]] = {}
    for row in read_table("nvlink5.tsv"):
        rules[int(row["xid"])] = (*rules.get(int(row["xid"]), ()), *_rules(row, generation))
    return rules


def _rules(row: dict[str, str], generation: str) -> Iterator[Rule]:
    statuses = frozenset(int(each, 16) for each in row["status"].split("/")) if row["status"] else None
    for bits, action in (
        (row[generation], row["action"]),
        (row[f"escalated_{generation}"], row["escalated_action"]),
    ):
        if bits:
            mask = int("".join("0" if bit == "-" else "1" for bit in bits), 2)
            value = int(bits.replace("-", "0"), 2)
            yield Rule(row["subcode"], mask, value, statuses, action, row["severity"])
