"""DaskSession: the nodes of a job on the workers of a dask.distributed cluster.

::

    session.py   DaskSession: the contract, as the runner sees it
    group_run.py a run of a group on the nodes: begun, followed, and cut
    nodes.py     calls to the nodes, what they have to say, and that one is lost
    cluster.py   a cluster of one's own, or one that runs; which node goes on which worker
    code.py      how the user's code comes to a worker that does not see the spec's folder
                 ---- above: in the client; below: on the workers ----
    actor.py     the actor that is a node
    holder.py    a LocalSession that holds one node's blobs and runs its units
    group.py     one node's portion of a group, with the messages from and to the other nodes
    news.py      what a node has to say while it runs: events, prints, batches
                 ---- of both ----
    portion.py   what of a group one node runs (pure)
    messages.py  what travels
"""
