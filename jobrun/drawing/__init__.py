"""Pictures of a job: what runs, what it reads and writes, what persists, and how a run went.

``picture`` turns a job into plain boxes and arrows; ``tree``, ``mermaid``, ``dot`` and ``svg`` each
write them as text of one kind.  No program is needed beside a reader of that kind.
"""
