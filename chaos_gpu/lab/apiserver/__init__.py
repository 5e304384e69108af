"""An API server that kubectl and the clients of Kubernetes accept, in memory and on loopback."""
