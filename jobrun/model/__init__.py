"""What is to be run, as plain values: jobs, groups, tasks, pipes, policies."""
