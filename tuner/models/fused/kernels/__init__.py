"""The kernels themselves. Importing anything here imports Triton.

Legend of all files in this folder. Capitals are known when a kernel is compiled.

Shapes are in words, as the fields of `memory_plan.Sizes` are: B samples of a batch, `length` input
hours, `horizon` hours ahead, `columns` = targets + past + future covariates of a window, `hidden`
features, `outputs` = targets x levels of an hour, `static` and `future` covariates. A name with
`_tile` is a power of two that holds the size. Of a plane, (horizon, features), a tile is worked on;
what lies beyond the plane is never stored.

    Z   `Sizes`
    Y   the `Sizes` that time mixing is compiled for: `hidden` are the features mixed at once
    E   `EntryFields`: where a record keeps what the entry needs
    B   `BlockFields`, in the same way
    H   `HeadFields`
    F   `MixingFields` of a feature mixing; G: of the static mixing, where a kernel has both
    K   inputs of a product, N its outputs; ALONG_K, ALONG_N: how far apart they are in a weight
    t   hours ahead; k, f: inputs or features; n, o: outputs; s: static covariates
    early   the kernel starts before the one before has ended (see `chain`)

Pointers, to float32 where nothing else is said:

    workspace   (B, Z.record); `record` is one sample's row of it, and fields are offsets in it
    masks       (B, Z.mask_record), bytes, 1 where an element is kept; `mask_record`: one sample's
    past        (B, length, columns); future (B, horizon, future); static (B, static)
    out         (B, horizon, outputs)
    weights, time, features, static_mixing, past_mixing, future_mixing, mixing, norm
                named tuples of pointers to parameters: `models.fused.weights` has their shapes
    scale_at    (): `scale`, what a kept element is multiplied by, 1 / (1 - dropout); in memory, as
                the same captured step serves trainings of other rates

Names: `grad_x` is the gradient of the loss along x, `normed` is normalised and not yet multiplied
by the norm's weight, `inverse` is 1 / deviation, (horizon,), `first` the first feature of a slice,
and X_ROW or `row` how far the rows of a plane in memory are apart.
"""
