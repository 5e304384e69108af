"""Eviction: a pod's deletion that respects the PodDisruptionBudgets over it."""

from chaos_gpu.lab.apiserver.calls import Bound
from chaos_gpu.lab.apiserver.deletion import Deleter
from chaos_gpu.lab.apiserver.resources import PDBS, PODS
from chaos_gpu.lab.apiserver.selectors import match_labels, selector_of
from chaos_gpu.lab.apiserver.shapes import EVICTION, check
from chaos_gpu.lab.apiserver.status import Json, StatusError, cause, not_found, success
from chaos_gpu.lab.apiserver.store import Store, Stored


def evict(bound: Bound, body: Json, store: Store, deleter: Deleter) -> Json:
    """Delete a pod if its budgets allow.

    A pod that is pending, finished or already going costs no budget.

    Raises:
        StatusError: 404, no such pod; 409, a precondition does not hold; 429, a budget does not allow it now.
    """
    options = dict(check(body, EVICTION).get("deleteOptions") or {})
    pod = store.get(PODS, bound.namespace, bound.name)
    if pod is None:
        raise not_found("pods", "", bound.name)
    if bound.call.dry_run:
        options["dryRun"] = ["All"]
    budgets = _budgets_over(pod.data, store) if _costs_budget(pod.data) else []
    for budget in budgets:
        if disruptions_allowed(budget.data, store) <= 0:
            raise _refused(budget.data)
    deleter.delete(bound.resource, bound.namespace, bound.name, options)
    if not options.get("dryRun"):
        for budget in budgets:
            _charge(budget, store)
    return success(201)


def disruptions_allowed(budget: Json, store: Store) -> int:
    """Return how many pods may go now: what a controller wrote into the status, else counted here."""
    written = (budget.get("status") or {}).get("disruptionsAllowed")
    if written is not None:
        return int(written)
    spec = budget.get("spec") or {}
    matches = match_labels(selector_of(spec.get("selector")))
    pods = [p.data for p in store.select(PODS, budget["metadata"]["namespace"], matches)]
    healthy = sum(1 for pod in pods if _is_ready(pod) and not pod["metadata"].get("deletionTimestamp"))
    if "maxUnavailable" in spec:
        return healthy - (len(pods) - _of(spec["maxUnavailable"], len(pods)))
    return healthy - _of(spec.get("minAvailable", 0), len(pods))


def _of(share: int | str, count: int) -> int:
    """Return a number of pods given as such or as a percentage, rounded up."""
    return share if isinstance(share, int) else -(-int(share.rstrip("%")) * count // 100)


def _is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _costs_budget(pod: Json) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Pending", "Succeeded", "Failed") and not pod["metadata"].get("deletionTimestamp")


def _budgets_over(pod: Json, store: Store) -> list[Stored]:
    budgets = store.select(PDBS, pod["metadata"]["namespace"])
    return [b for b in budgets if match_labels(selector_of((b.data.get("spec") or {}).get("selector")))(pod)]


def _charge(budget: Stored, store: Store) -> None:
    if (budget.data.get("status") or {}).get("disruptionsAllowed") is not None:
        obj = budget.thaw()
        obj["status"]["disruptionsAllowed"] -= 1
        store.put(PDBS, obj)


def _refused(budget: Json) -> StatusError:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    told = cause("DisruptionBudget", f"The disruption budget {budget['metadata']['name']} does not allow it now")
    return StatusError(429, "TooManyRequests", message, {"causes": [told]})
