"""Searches of few, long trainings: what a stage on fewer windows tells of the whole training."""
