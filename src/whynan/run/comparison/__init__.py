"""``whynan diff``: two programs named by the user, from opening them to the report."""
