"""Analysis of a job without running it: reads and writes, plans, problems, identity."""
