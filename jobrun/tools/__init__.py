"""The work of commands beside running a job: inspect, compare, export, sweep, smoke."""
