"""The arena all blocks live in, leases on them, and what is evicted first."""
