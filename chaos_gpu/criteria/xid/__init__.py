"""Xid codes: what they mean, how the driver writes them, what a platform should do about them."""
