"""The lab's kubelet: pods of the simulated nodes run as local processes."""
