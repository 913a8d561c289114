"""In which order neuralforecast's multivariate classes return what they forecast."""

QUANTILES_FIRST = frozenset(
    (
        "RMoK",
        "SOFTS",
        "SOFTSSharp",
        "StemGNN",
        "TSMixer",
        "TSMixerx",
        "TimeXer",
        "XLinear",
        "iTransformer",
    )
)
"""Multivariate classes that return, for an hour, one quantile of all targets, then the next.

The library's own loss (`MQLoss.domain_map`, 3.3.0) reads all quantiles of one target, then the
next: with several quantiles it gives each target what the network says of others, at their levels.
"""
