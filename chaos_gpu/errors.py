"""Every error of ours, and what it means for the run.

ChaosGpuError                 something of ours went wrong; the message says what to do
├── UsageError                bad input: argument, configuration, file           → exit 4
├── Refused                   the guard says no: safety, rights, API before arming → exit 4
├── ApiError                  the API server said no
│   ├── Forbidden             401, 403
│   ├── NotFound              404
│   ├── Conflict              409: someone else changed or made it first
│   ├── Gone                  410: this resourceVersion is too old
│   └── Invalid               400, 422: the object or the patch was rejected
├── ApiUnavailable            no answer, 429 or 5xx until the deadline
├── TargetError               no target, or not a fit one
├── NotLanded                 the fault was not seen to take effect              → inconclusive
└── NotRecovered              something of the run is still there               → exit 3

All are `ActivityFailed`, so Chaos Toolkit records them as a failed activity and goes on to the rollbacks.
None may be confused with an interrupt (`InterruptExecution`, an ordinary Exception there): never `except Exception`.
"""

from chaoslib.exceptions import ActivityFailed


class ChaosGpuError(ActivityFailed):  # type: ignore[misc]
    """Root of the tree. `remedy` says what to do next."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}\n         {remedy}" if remedy else message)
        self.reason = message
        self.remedy = remedy


class UsageError(ChaosGpuError):
    """Bad input: an argument, a configuration value, a file."""


class Refused(ChaosGpuError):
    """The guard does not let this run start, or go on."""


class ApiError(ChaosGpuError):
    """The API server answered with an error Status."""

    def __init__(self, message: str, status: int = 0, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.status = status


class Forbidden(ApiError):
    """401 or 403: credentials expired, or a right is missing."""


class NotFound(ApiError):
    """404: no such object."""


class Conflict(ApiError):
    """409: exists already, or changed since it was read."""


class Gone(ApiError):
    """410: the resourceVersion is too old; list again."""


class Invalid(ApiError):
    """400 or 422: the server did not accept the object or the patch."""


class ApiUnavailable(ChaosGpuError):
    """No answer, or 429/5xx, until the deadline."""


class TargetError(ChaosGpuError):
    """Nothing matched, or what matched may not be touched."""


class NotLanded(ChaosGpuError):
    """The fault's effect was not read back: nothing may be judged."""


class NotRecovered(ChaosGpuError):
    """Something of the run remains; the message says what and where."""
