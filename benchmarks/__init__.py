"""What tracing costs, beside its peers, in one interleaved run."""
