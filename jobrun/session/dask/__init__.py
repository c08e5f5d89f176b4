"""DaskSession: the nodes of a job on the workers of a dask.distributed cluster.

On the client::

    session.py       DaskSession: the contract, as the runner sees it
    group_run.py     a run of a group on the nodes: started, followed, and cut
    closure.py       the units that belong to a cut (pure)
    nodes.py         calls to the nodes, their news, and their loss
    snapshot.py      a snapshot whose values stay on the nodes
    cluster.py       clusters, and the placement of nodes on workers

On the workers::

    actor.py         the actor that is a node
    node_session.py  a LocalSession that holds one node's blobs and runs its units
    group.py         one node's part of a group, with the messages from and to the other nodes
    event_queue.py   the news of a node while it runs: events, output, batches

On both::

    node_plan.py     the part of a group that one node runs (pure)
    messages.py      the messages between client and nodes, and between nodes
    actor_calls.py   calls of an actor's methods
    code.py          the transfer of the user's code to a worker that does not see the spec's folder
"""
