"""The studies in a browser: optuna-dashboard, read-only,
with figures, a note and files that tuner adds.
"""

from tuner.report.dashboard.server import make_dashboard, serve

__all__ = ["make_dashboard", "serve"]
