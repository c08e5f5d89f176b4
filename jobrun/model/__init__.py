"""The description of a run as plain values: jobs, groups, tasks, pipes, policies."""
