"""The controllers of Kubernetes that the lab needs, as API clients: scheduler, Job, DaemonSet, Deployment and more."""
