"""Chaos Toolkit extensions for GPU platforms on Kubernetes: faults that are undone, verdicts with evidence."""

__version__ = "0.1.0"
