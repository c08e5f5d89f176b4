"""What commands do with jobs and runs beside running one: inspect, compare, export, sweep, smoke."""
