"""The kinds of fault that there are: the action that experiments name, its arguments, and who plans it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from chaos_gpu.errors import UsageError
from chaos_gpu.faults.admission import AdmissionArguments, plan_admission
from chaos_gpu.faults.application_xid import ApplicationXidArguments, plan_application_xid
from chaos_gpu.faults.checkpoint import KillArguments, PreemptArguments, plan_kill, plan_preempt
from chaos_gpu.faults.dcgm import DcgmArguments, plan_dcgm
from chaos_gpu.faults.gpu_job import JobArguments, plan_job
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.planning import FaultArguments, Planning
from chaos_gpu.faults.settings import problems
from chaos_gpu.faults.xid import XidArguments, plan_xid


class Kind(NamedTuple):
    """One way to inject."""

    module: str
    func: str
    arguments: type[FaultArguments]
    plan: Callable[[Planning, Any], Plan]
    """Takes the arguments in the type above."""


KINDS = (
    Kind("chaos_gpu.actions.xid", "inject_xid", XidArguments, plan_xid),
    Kind("chaos_gpu.actions.application", "raise_application_xid", ApplicationXidArguments, plan_application_xid),
    Kind("chaos_gpu.actions.dcgm", "inject_dcgm_error", DcgmArguments, plan_dcgm),
    Kind("chaos_gpu.actions.health", "run_gpu_job", JobArguments, plan_job),
    Kind("chaos_gpu.actions.health", "withdraw_r2", AdmissionArguments, plan_admission),
    Kind("chaos_gpu.actions.checkpoint", "kill_during_save", KillArguments, plan_kill),
    Kind("chaos_gpu.actions.checkpoint", "preempt", PreemptArguments, plan_preempt),
)


def kind_of(activity: Mapping[str, Any]) -> Kind | None:
    """Return the kind of fault that an activity injects, None for one that injects none."""
    provider = activity.get("provider") or {}
    called = provider.get("module"), provider.get("func")
    return next((kind for kind in KINDS if called == (kind.module, kind.func)), None)


def arguments_of(kind: Kind, activity: Mapping[str, Any]) -> FaultArguments:
    """Read an injecting activity's arguments. Raises UsageError naming the argument and what is wrong with it."""
    try:
        return kind.arguments.model_validate(activity["provider"]["arguments"])
    except ValidationError as failure:
        raise UsageError(
            f"activity {activity.get('name')!r}: {problems(failure)}",
            remedy=f"chaos discover, or the documentation of {kind.func}, shows the types",
        ) from failure
