"""The lab: an embedded GPU platform on loopback, with the same API as a cluster."""
