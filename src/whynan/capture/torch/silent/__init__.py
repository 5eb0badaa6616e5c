"""Silent damage: numbers that are finite and wrong."""
