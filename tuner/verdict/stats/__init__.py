"""The statistics of a verdict: pure functions on arrays, nothing of studies, databases or devices.

`intervals`  medians and means with their intervals
`noninferiority`  whether one is no worse than another by more than a margin
`searches`   variants held against each other, with whole searches as the unit
"""
