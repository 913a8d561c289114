"""A table of real trials, a surrogate of it, and a simulated job in its place: what samplers are compared on."""
