"""Forecasts of many detectors: a small xLSTM over each one's past, and pooling over neighbours."""
