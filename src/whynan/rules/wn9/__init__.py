"""Family 9: linear algebra."""
