"""Where a framework has a place of its own for what watches a training: one thin file each."""
