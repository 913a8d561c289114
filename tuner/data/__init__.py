"""Tasks and their data: what is forecast, from which file, and the arrays that training reads.

`task` says what a task is, `prepare` turns it into scaled arrays and windows, `windows` puts those
on a device. Only `windows` imports torch.
"""
