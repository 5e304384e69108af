"""What the exit status of `dcgmi` means: DCGM's return code, modulo 256.

Source: `dcgm_structs.h` of DCGM 4.6.0; runs of 3.3.9 and 4.6.0. Status 0 of `dcgmi health -c` says nothing about
health, and 226 of `dcgmi diag` may be a warning only.
"""

from collections.abc import Mapping
from types import MappingProxyType

SUCCESS, SOME_ERROR, ISOLATE, UNWATCHED = 0, 226, 205, 253

MEANINGS: Mapping[int, str] = MappingProxyType(
    {
        0: "the command ran; of a diagnostic also: no error",
        1: "unknown argument, or two that exclude each other",
        126: "dcgmi cannot be executed there",
        127: "there is no dcgmi there",
        189: "the GPUs are detached from the engine",
        198: "no such test, or none available",
        200: "the driver's library NVML is not loaded",
        202: "the engine is paused: dcgmi test --resume",
        203: "the diagnostic was killed",
        204: "the engine's host has no diagnostic program (nvvs)",
        205: "an error that asks for isolation",
        215: "the diagnostic could not be started",
        216: "the diagnostic gave broken JSON to the engine",
        217: "another diagnostic is running",
        221: "the group is empty: no GPUs",
        222: "in use: another diagnostic is running",
        223: "a module of the engine is not loaded",
        226: "the diagnostic has an error, maybe only a warning: its JSON says which",
        227: "root is required",
        233: "the GPUs of the group differ too much",
        235: "no engine reachable",
        238: "a GPU is lost",
        239: "no permission",
        240: "the field is not watched",
        242: "no data",
        243: "unknown field",
        244: "dcgmi and engine are of different versions",
        245: "timeout",
        248: "NVML reports an error",
        250: "not supported",
        253: "generic error; of health: its watches are not set (dcgmi health -s a, then wait a minute)",
        254: "an argument is wrong",
        255: "bad parameter: no such GPU, field or group",
    }
)


def meaning_of(status: int) -> str:
    """Return what an exit status means, in words."""
    return MEANINGS.get(status, "not a status that DCGM documents")
