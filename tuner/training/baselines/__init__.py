"""Forecasts that need no network: what one has to beat before it is worth its training."""
