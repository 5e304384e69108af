"""The rows of the registry, a module for each layer."""
