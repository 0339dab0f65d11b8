"""Several engines on one node: a process each, with GPUs or cores of its own.

devices.py  which GPUs, or which cores, each gets
sizing.py   how many engines, GPUs of each, and sequences at once, where settings say auto
process.py  such a process, seen from its parent and from within
"""
