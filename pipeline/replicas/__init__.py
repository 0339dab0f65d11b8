"""Several engines on one node: a process each, with GPUs or cores of its own.

devices.py  which GPUs, or which cores, each gets
process.py  such a process, seen from its parent and from within
"""
