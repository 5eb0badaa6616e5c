"""Family 5: softmax, attention and masks."""
