"""I/O with Kubernetes: raw JSON objects, a timeout and a deadline on every call."""
