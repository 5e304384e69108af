"""Activities of other providers have arguments of other shapes; the guard lets them be."""

from typing import Any

import pytest

from chaos_gpu.errors import UsageError
from chaos_gpu.faults.activities import resolved


@pytest.mark.parametrize("arguments", [["wait", "node/x"], "wait node/x", {"--for": "x"}, {"fault": "theirs"}, None])
def test_a_process_may_have_any_arguments(arguments: Any) -> None:
    activity = {"type": "action", "name": "wait", "provider": {"type": "process", "path": "kubectl"}}
    activity["provider"] = {**activity["provider"], **({"arguments": arguments} if arguments else {})}  # type: ignore[dict-item]
    (found,) = resolved({"method": [activity]}, {}, {})
    assert found["provider"]["arguments"] == (arguments or {})


def test_an_unresolved_reference_in_them_is_refused_all_the_same() -> None:
    activity = {"type": "action", "name": "x", "provider": {"type": "process", "path": "x", "arguments": ["${node}"]}}
    with pytest.raises(UsageError, match="unresolved"):
        resolved({"method": [activity]}, {}, {})
