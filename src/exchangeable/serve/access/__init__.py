"""What is admitted: origins of requests, tokens with roles, bodies within limits."""
