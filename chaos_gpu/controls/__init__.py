"""Chaos Toolkit controls: the guard."""
