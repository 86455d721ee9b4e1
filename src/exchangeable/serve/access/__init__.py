"""Access control of the service: origins of requests, tokens with roles, limits of bodies."""
