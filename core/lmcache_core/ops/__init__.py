"""Pages over HTTP for people, probes and Prometheus."""
