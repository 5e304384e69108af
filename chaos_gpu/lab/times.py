"""Times as the API writes them."""

from datetime import UTC, datetime


def rfc3339() -> str:
    """Return the time now, UTC, whole seconds: metav1.Time."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro() -> str:
    """Return the time now, UTC, with microseconds: metav1.MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_since(text: str) -> float:
    """Return how long ago a time of the API is, in seconds."""
    return (datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()
