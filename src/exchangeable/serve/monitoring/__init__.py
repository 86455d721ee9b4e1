"""What operators see of the service: readiness, metrics, logs and traces."""
