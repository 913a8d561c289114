"""How the same mathematics is executed (eager, captured, compiled, fused), and the choice."""
