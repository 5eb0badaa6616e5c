"""The pytest plugin of whynan."""
