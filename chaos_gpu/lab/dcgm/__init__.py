"""A simulated DCGM: an engine per node, its `dcgmi`, its exporter, and an agent that acts on what its health says.

Behaves as DCGM 4.6.0 does where that was measured on a real engine: texts, exit codes, lifetimes of injected samples,
rules of the health watches. Standard library only: its programs start often.
"""
