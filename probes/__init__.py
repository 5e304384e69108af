"""What experiments look at: thin functions named by Chaos Toolkit experiments, installed as `chaos_gpu.probes`."""
