"""Pictures of a job: what runs, what it reads and writes, what persists, and how a run went.

``picture`` turns a job into plain boxes and arrows; ``tree``, ``mermaid``, ``dot`` and ``svg`` each
write them as text in one format.  No other program is needed to draw.
"""
