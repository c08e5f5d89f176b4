"""The spec language: from a YAML file to a job, and all that can be wrong with it.

::

    source     text -> tree of nodes with their places     (scalars, syntax)
    model      the language, as models of pydantic         (faults, fields, names)
    problems   errors of pydantic -> problems with places
    overrides  --set and --epochs
    resolve    file -> Spec
    build      Spec -> Job, and every check of it          (stops)
    schema     the models as a JSON Schema
    render     a resolved spec as text, with the origin of each value
    diff       what a job is, and what differs between two

Nothing here imports numpy or the user's code, unless a function is asked to bind it.
"""
