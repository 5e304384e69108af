"""Scripts that run inside pods: one file each, Python 3.8 standard library only, importing nothing of ours.

Protocol: `python3 -I payload.py --spec spec.json`; one JSON object a line on stdout, each with `event` and `at` (UTC):
started, landed, holding, reverted, failed. Exit 0: reverted. 3: could not inject, nothing was changed. 4: could not
revert, the last event says what is left.
"""
