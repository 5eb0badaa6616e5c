"""One file per hazard: its page, what it recognises, and what it says."""
