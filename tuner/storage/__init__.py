"""The shared SQL database: Optuna's tables and our own beside them."""
