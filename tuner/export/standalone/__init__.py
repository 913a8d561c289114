"""What an exported script does beside the network: it reads the data and trains by the protocol.

Real code, checked and tested like any other, of which `tuner.export.bundle` takes the source.
Beyond the package's own definitions, which are bundled too, it may import torch, pandas and numpy,
nothing else that needs installing.
"""
