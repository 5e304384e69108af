"""Layer 6, jobs: whether a training that is interrupted goes on as if it had not been."""
