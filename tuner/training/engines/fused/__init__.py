"""A training step's kernels beside the network's: gather, loss, optimiser, in few launches.

Only imported where a training runs on them: they need Triton, which comes with torch for CUDA.

Legend of the kernels in this folder: B windows of a batch, N of a split, R rows of its series, L
input hours, T horizon, C targets, K = targets + past + future covariates, F future covariates, S
static covariates, Q quantiles. Pointers are to float32 where nothing else is said; `block` numbers
are a program's share; `early`: the kernel starts before the one before has ended (see
`tuner.models.fused.kernels.pieces`).
"""
