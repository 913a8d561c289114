"""Optuna's tables: the only place that touches its private parts."""
