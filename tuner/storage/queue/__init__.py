"""Who does which work: claims with leases, workers,
results on their way, and the epochs that they report.
"""
