"""The studies in a browser: optuna-dashboard, read-only, with figures, a note and files that tuner
adds.
"""
