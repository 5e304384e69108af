"""Chaos Toolkit extension for GPU platforms on Kubernetes: faults that are undone, verdicts with evidence."""

from typing import Any

__version__ = "0.1.0"


def discover(discover_system: bool = True) -> dict[str, Any]:
    """Answer `chaos discover chaostoolkit-gpu`: every action and probe, with its arguments and their types.

    Chaos Toolkit fixes the name and the parameter. `discover_system` changes nothing: what a cluster can be
    judged on is `chaos-gpu doctor`'s to say, and discovery must not contact one.
    """
    # Imported here, so that `import chaos_gpu` costs nothing; by name, so that it depends on no layer.
    from importlib import import_module
    from pkgutil import iter_modules

    from chaoslib.discovery import discover_actions, discover_probes, initialize_discovery_result

    discovery: dict[str, Any] = initialize_discovery_result("chaostoolkit-gpu", __version__, "gpu")
    for package, activities_of in (("chaos_gpu.actions", discover_actions), ("chaos_gpu.probes", discover_probes)):
        for module in iter_modules(import_module(package).__path__, prefix=f"{package}."):
            discovery["activities"].extend(activities_of(module.name))
    return discovery
