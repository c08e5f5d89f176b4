"""What follows from a job without running it: who reads and writes what, plans, problems, identity."""
