"""The ``map`` steps of pipes in worker processes, with arrays in shared memory."""
