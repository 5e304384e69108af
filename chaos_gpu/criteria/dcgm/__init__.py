"""DCGM's outputs: diagnostics, health, exit codes, exported metrics; what they say, and what they do not show."""
