"""A training step's kernels beside those of the network: gather, loss, and the optimiser, each in one or two launches.

Only imported where a training runs on them: they need Triton, which comes with torch for CUDA.
"""
