"""What searches will need compiled, compiled before their trials meet it, without a GPU.

`compile_order` never imports torch: a launch reads it. `compile_all` is a
process of its own, which imports everything and forks one more for each kernel.
"""
