"""The node health policy: admission, diagnosis after a fault, the weekly diagnosis, and the records of them all."""
