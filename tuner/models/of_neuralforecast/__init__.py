"""The model classes of neuralforecast as networks of tuner: `model = "neuralforecast:TCN"`."""
