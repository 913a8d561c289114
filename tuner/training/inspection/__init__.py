"""What can be seen of a network in a few steps on a CPU, before hours are spent on it."""
