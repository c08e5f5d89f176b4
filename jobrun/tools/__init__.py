"""What commands do beside running a job: inspect, compare, export, sweep, smoke."""
