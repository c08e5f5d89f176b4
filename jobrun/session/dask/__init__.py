"""DaskSession: the nodes of a job on the workers of a dask.distributed cluster.

On the client::

    session.py         DaskSession: the contract, as the runner sees it
    group_run.py       a run of a group on the workers: started, followed, and cut
    closure.py         the units that belong to a cut (pure)
    workers.py         calls to the workers, their news, and their loss
    snapshot.py        a snapshot whose values stay on the workers
    cluster.py         clusters, and actors on their workers
    placement.py       which nodes go to which worker (pure)

On the workers::

    actor.py           the actor that holds the nodes of a worker
    worker_session.py  a LocalSession that holds the blobs of these nodes and runs their units
    group.py           a worker's part of a group, with the messages from and to the other workers
    mailbox.py         the messages of a run, and the blobs of other workers in them
    step_exchange.py   the messages of a pipe in lock step
    shared_content.py  large arrays of these messages, in memory that workers of one machine share
    step_board.py      the messages that pipes in lock step wait for
    event_queue.py     the news of a worker while it runs: events, output, batches

On both::

    worker_plan.py     the part of a group that one worker runs (pure)
    messages.py        the messages between client and workers, and between workers
    actor_calls.py     calls of an actor's methods
    code.py            the user's code, sent to a worker that does not see the spec's folder
"""
