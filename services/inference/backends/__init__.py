"""One file per way of running a model; each imports its heavy library itself."""
