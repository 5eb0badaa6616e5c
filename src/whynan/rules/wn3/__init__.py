"""Family 3: roots and powers."""
