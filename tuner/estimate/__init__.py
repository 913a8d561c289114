"""What a search will cost, before it is begun.

`cost_sizes`      the sizes of a space: the values that change what an epoch costs
`size_costs`      what was measured of sizes, or recorded by trials
`cost_model`      the sizes between: epoch seconds and memory, each with a range
`recorded_work`   how many epochs recorded searches took, and of which sizes
`work_ahead`      the same for a search to come, or for what is left of one
`foretold`        hours, money, and the sentences about them
`measuring`       the only part that needs torch, in a process of its own

All but the last is plain arithmetic: `launch` and `retune` import no torch for it.
"""
