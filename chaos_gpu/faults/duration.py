"""How long an experiment takes, at the least and at the most, by what each of its activities waits for.

What nobody can know ahead is left out of the least and said beside it: how long pods take to start, how fast the
platform reacts, how long a training takes to the place where it is killed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from chaos_gpu.criteria.dcgm.injection import Injection
from chaos_gpu.criteria.xid.policy import Action
from chaos_gpu.criteria.xid.record import Form
from chaos_gpu.faults import dcgm
from chaos_gpu.faults.expected import XIDS, expected_of
from chaos_gpu.faults.kinds import kind_of
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.settings import Settings
from chaos_gpu.payloads.endings import GONE_S

COMMAND_S = 30.0
"""How long a quick command of DCGM may take, or the last word of what watches a training."""


class Span(NamedTuple):
    """Seconds at the least and at the most, and how many pods have to start within them."""

    least_s: float
    most_s: float
    pods: int = 0

    def then(self, after: "Span") -> "Span":
        """Return both, one after the other."""
        return Span(self.least_s + after.least_s, self.most_s + after.most_s, self.pods + after.pods)


Waits = Callable[[Mapping[str, Any], Plan | None, Settings], Span]
NOTHING = Span(0, 0)


def duration_of(activities: Iterable[Mapping[str, Any]], plans: Mapping[str, Plan], settings: Settings) -> Span:
    """Say how long a run takes.

    Args:
        activities: of the method, arguments filled in.
        plans: by fault.
        settings: with the windows.
    """
    whole = Span(0, settings.start_s, 1) if plans else NOTHING  # the reverter
    watched_s = dict.fromkeys(plans, 0.0)
    for activity in activities:
        provider = activity["provider"]
        fault = provider["arguments"].get("fault")
        plan = plans.get(fault) if isinstance(fault, str) else None
        waits = _injects if kind_of(activity) else _WAITS.get(f"{provider.get('module')}.{provider.get('func')}", _no)
        span = waits(provider["arguments"], plan, settings)
        whole = whole.then(span)
        if plan is not None:
            watched_s[plan.fault] += span.least_s
    for plan in plans.values():
        whole = whole.then(_settles(plan, watched_s[plan.fault], settings))
    return whole


def _injects(arguments: Mapping[str, Any], plan: Plan | None, settings: Settings) -> Span:
    if plan is None:
        return NOTHING
    trainings = sum(body["kind"] == "Job" for body in plan.objects)
    until_s = settings.start_s if plan.pod else 0.0  # it starts, and it lands, or a training comes to its place
    lands_s = plan.deadline_s if trainings else until_s
    return Span(0, until_s + lands_s, bool(plan.pod) + trainings)


def _settles(plan: Plan, watched_s: float, settings: Settings) -> Span:
    """Say how long the reaction is seen through; where none may come, all its window is waited for."""
    if plan.consequence is None:
        return NOTHING
    least_s = max(0.0, plan.consequence.reaction_s - watched_s) if _left_alone(plan, settings) else 0.0
    return Span(least_s, plan.longest_s)


def _left_alone(plan: Plan, settings: Settings) -> bool:
    judged = plan.kind in XIDS and plan.facts["form"] != Form.SXID
    return judged and expected_of(plan, settings).action is Action.NONE


def _no(arguments: Mapping[str, Any], plan: Plan | None, settings: Settings) -> Span:
    return NOTHING


def _kept(arguments: Mapping[str, Any], plan: Plan | None, settings: Settings) -> Span:
    return Span(settings.cordon_s, settings.cordon_s + settings.hold_s)


def _cordons(arguments: Mapping[str, Any], plan: Plan | None, settings: Settings) -> Span:
    return Span(settings.hold_s, 2 * settings.cordon_s + settings.hold_s)


def _follows(arguments: Mapping[str, Any], plan: Plan | None, settings: Settings) -> Span:
    if plan is not None and _left_alone(plan, settings):
        return _kept(arguments, plan, settings)
    return Span(0, 2 * settings.cordon_s)


def _under_job(arguments: Mapping[str, Any], plan: Plan | None, settings: Settings) -> Span:
    held_s = max(settings.hold_s, float(arguments.get("seconds", 0))) + settings.skew_s
    return Span(held_s, 2 * settings.cordon_s + held_s)


def _gone(arguments: Mapping[str, Any], plan: Plan | None, settings: Settings) -> Span:
    """DCGM tells once more of a change, when it leaves its window: only what is well after that counts."""
    grows = plan is not None and plan.kind == dcgm.KIND and Injection(*_sample(plan)).grows
    echo_s = settings.echo_s if grows else 0.0
    return Span(echo_s, echo_s + settings.echo_s + settings.start_s + COMMAND_S, 1)


def _sample(plan: Plan) -> tuple[str, int, float]:
    return str(plan.facts["error"]), int(plan.facts["field"]), float(plan.facts["value"])


def _at_most(waited_s: Callable[[Settings], float], pods: int = 0) -> Waits:
    def waits(arguments: Mapping[str, Any], plan: Plan | None, settings: Settings) -> Span:
        return Span(0, waited_s(settings) + pods * settings.start_s, pods)

    return waits


def _holds(arguments: Mapping[str, Any], plan: Plan | None, settings: Settings) -> Span:
    seconds = float(arguments.get("seconds", 0))
    return Span(seconds, seconds)


_DEVICE, _HEALTH = "chaos_gpu.probes.device", "chaos_gpu.probes.health"
_DCGM, _JOB, _RUN = "chaos_gpu.probes.dcgm", "chaos_gpu.probes.job", "chaos_gpu.actions.run"
_ENDED = _at_most(lambda settings: settings.resume_s + COMMAND_S)
_ASKED = _at_most(lambda settings: COMMAND_S, pods=1)
_WAITS: Mapping[str, Waits] = {
    f"{_DEVICE}.xid_detected": _at_most(lambda settings: 2 * settings.condition_s),
    f"{_DEVICE}.detectors_see": _at_most(lambda settings: 2 * settings.condition_s),
    f"{_DEVICE}.time_to_cordon": _cordons,
    f"{_DEVICE}.node_kept": _kept,
    f"{_DEVICE}.policy_followed": _follows,
    f"{_HEALTH}.admission_held": _cordons,
    f"{_HEALTH}.cordoned_during_job": _under_job,
    f"{_HEALTH}.diagnosed": _at_most(lambda each: each.diagnosis_s + max(each.uncordon_s, each.hold_s)),
    f"{_DCGM}.diagnosis_reads_right": _at_most(lambda settings: settings.diagnosis_s, pods=1),
    f"{_DCGM}.health_grades_right": _ASKED,
    f"{_DCGM}.health_sees_error": _ASKED,
    f"{_DCGM}.error_exported": _at_most(lambda settings: settings.condition_s + COMMAND_S, pods=1),
    f"{_DCGM}.platform_acts_on_error": _at_most(lambda settings: 1.5 * settings.cordon_s),
    f"{_DCGM}.error_gone": _gone,
    f"{_JOB}.resumes": _ENDED,
    f"{_JOB}.saves_in_time": _ENDED,
    f"{_JOB}.keeps_enough": _ENDED,
    f"{_JOB}.saves_in_grace": _ENDED,
    f"{_RUN}.hold": _holds,
    f"{_RUN}.revert": _at_most(lambda settings: GONE_S),
}
"""Activity → what it waits for; each probe's own text says the same."""
