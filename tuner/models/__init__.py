"""The networks: one TSMixer with five built-in variants, and the way to bring one's own class."""
