"""What experiments do: thin functions named by Chaos Toolkit experiments, installed as `chaos_gpu.actions`."""
