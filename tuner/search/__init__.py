"""What to try next: samplers, the model of noisy trials,
the acquisition of our own, and pruning.
"""
