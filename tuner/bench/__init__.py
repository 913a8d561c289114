"""`tuner bench`: our backends, darts and neuralforecast on the same job, interleaved in one run."""
