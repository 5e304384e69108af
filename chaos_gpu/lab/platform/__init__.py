"""The GPU platform under test: what a site would run on its cluster, as ordinary API clients."""
