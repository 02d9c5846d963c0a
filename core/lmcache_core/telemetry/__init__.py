"""Usage telemetry: what would be reported to the operator's own collector, and nothing else."""
