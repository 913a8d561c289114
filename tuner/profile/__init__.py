"""`tuner profile`: where a training's time goes, what would help, and by how much."""
