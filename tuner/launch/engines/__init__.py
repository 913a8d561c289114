"""Engines that place workers on other machines: Ray, Slurm, Kubernetes.

An engine places processes and keeps them alive. It owns no trial: workers claim trials in the
database, as they do everywhere, so budgets and results do not depend on it.
"""
