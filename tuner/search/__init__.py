"""What to try next: samplers, the model of noisy trials, and pruning."""
