"""The ``map`` steps of pipes in worker processes, with arrays in shared memory.

On both sides::

    channel.py        messages between two processes, with large arrays in shared memory
    wire.py           plain values as messages
    shared_memory.py  memory that two processes share, and that has no name
    status.py         the status of a worker, readable when it cannot answer any more

In the process of the run::

    pool.py           the workers of a pipe, and what becomes of a batch whose worker is lost
    process.py        one worker process, as seen from the process that starts it

In the worker::

    worker.py         runs the ``map`` steps on one batch after another

Why these are ours, measured against ``concurrent.futures.ProcessPoolExecutor`` (spawn) and loky
3.7, with pickle 5 and its buffers in reused ``multiprocessing.shared_memory``: the same pipe with
only the transport exchanged, 2 processes on 2 cores that others used too, 40 interleaved rounds, ms
a batch (median; minimum in parentheses):

=============================  =============  =============  =============
``map`` step                   ours           executor       loky
=============================  =============  =============  =============
0.2 ms of Python, 4 KiB        0.78 (0.49)    0.79 (0.42)    1.77 (1.05)
nothing, 4 KiB                 0.30 (0.18)    0.38 (0.21)    1.28 (0.64)
8 MiB there and back           2.84 (0.95)    2.33 (1.85)    10.3 (5.71)
=============================  =============  =============  =============

So an executor is as fast, within the noise; that in the table even reuses the memory of answers
without asking whether views of it are left, as a ``Channel`` does.  (A message of the table is one
batch.  Since small batches travel in groups, a step that does nothing costs 0.022 ms, and 0.078
with ``executor.map``.)  What decides is a SIGKILL:

- Of a worker: an executor fails all its batches, those of the other workers too
  (BrokenProcessPool, TerminatedWorkerError), and every later one, and does not know the step, the
  try or the exit status of the one that was lost.  Here one batch fails or is repeated, in a new
  process: 12 batches of 0.3 s took 2.2 s in place of 1.8.
- Of the run: the workers of an executor were alive 15 s later, in the middle of a step, with their
  named shared memory in ``/dev/shm``.  Here they were gone after 15 ms, and nothing is left.

Neither can end one worker whose step exceeds its ``timeout``.
"""
