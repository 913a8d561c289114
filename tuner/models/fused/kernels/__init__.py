"""The kernels themselves. Importing anything here imports Triton."""
