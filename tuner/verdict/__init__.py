"""What may be said of studies: verification, picks, comparison, and the statistics behind them."""
