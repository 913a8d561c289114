"""The statistics of a verdict: pure functions on arrays, nothing of studies, databases or devices.

`intervals`  medians with bootstrap intervals
`permutation` tests of paired differences, the intervals that belong to them, and Holm's correction
`pairs`      configurations held against each other: effects, tests, what may be claimed
`noninferiority`  whether one is no worse than another by more than a margin
`searches`   variants held against each other, with whole searches as the unit
"""
