"""What a search will cost, before it is begun.

`cost_model`         the sizes of a space: seconds of an epoch and memory of each, with a range;
                     what was measured of them, or recorded by trials
`work_ahead`         how many epochs recorded searches took, and what that says of one to come
`foretold`           seconds on devices, hours and money of a search
`whole_estimate`     all that `tuner estimate` tells, and the sentences about it
`measuring_process`  the process that measures, from outside
`serve_orders`       that process
`driven`             a training, a stretch at a time: what it, `bench` and `profile` measure

All but the last two is plain arithmetic: `launch` and `retune` import no torch for it.
"""
