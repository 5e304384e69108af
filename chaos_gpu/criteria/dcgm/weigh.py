"""How grave an error is, and what a result comes to with its errors: DCGM's printed status alone does not say.

DCGM prints a warning as `Fail` (4.x everywhere, 3.x at level 1), and `Pass` beside an error that it recorded. What
counts is the error's severity: `monitor` and `config` are warnings, `isolate`, `reset` and `triage` are failures.
"""

from collections.abc import Sequence

from chaos_gpu.criteria.dcgm.report import Action, DiagError, Result, Says, Status

_WARNINGS = ("monitor", "config")
_FAILURES = ("isolate", "reset", "triage", "unknown")
_ACTIONS = {str(action): action for action in Action}
_ORDER = list(Says)
_BY_STATUS = {Status.PASS: Says.PASS, Status.WARN: Says.WARN, Status.FAIL: Says.FAIL, Status.SKIP: Says.PASS}


def worst(each: Sequence[Says]) -> Says:
    """Return the worst of several; of none, inconclusive."""
    return min(each, key=_ORDER.index, default=Says.INCONCLUSIVE)


def weighed(printed: Status, errors: Sequence[DiagError]) -> Status:
    """Return a result's status as the engine means it.

    Args:
        printed: the status in the JSON.
        errors: the result's own, or, for a failure without any, those that the test reports for no entity.
    """
    if not errors:
        return printed
    grave = worst([_gravity(error, printed) for error in errors])
    if grave is Says.FAIL:
        return Status.FAIL
    return Status.WARN if printed in (Status.PASS, Status.WARN, Status.FAIL) else printed


def says(result: Result) -> Says:
    """Return what one result says; one that did not run says nothing, unless it has errors."""
    by_status = _BY_STATUS.get(result.status, Says.INCONCLUSIVE)
    by_errors = Says.WARN if result.errors else Says.PASS
    return worst([by_status, by_errors])


def action_of(results: Sequence[Result]) -> Action:
    """Return the gravest action that results ask for; where the engine gives none for a trouble, triage."""
    explained = {result.test for result in results if result.errors}
    asked = [_action(error) for result in results for error in result.errors]
    for result in results:
        if result.status in (Status.FAIL, Status.WARN) and result.test not in explained:
            asked.append(Action.TRIAGE)
    gravest = gravest_of(asked)
    failed = any(result.status is Status.FAIL for result in results)
    return Action.TRIAGE if gravest is Action.NONE and failed else gravest


def gravest_of(actions: Sequence[Action]) -> Action:
    """Return the gravest of several actions; of none, none."""
    return min(actions, key=list(Action).index, default=Action.NONE)


def _action(error: DiagError) -> Action:
    return _ACTIONS.get(error.severity or "", Action.TRIAGE)


def _gravity(error: DiagError, printed: Status) -> Says:
    if error.severity in _FAILURES:
        return Says.FAIL
    if error.severity in _WARNINGS:
        return Says.WARN
    return Says.FAIL if printed is Status.FAIL else Says.WARN  # without a severity the printed word stands
