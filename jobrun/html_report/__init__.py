"""The report of runs: one HTML file that needs neither network nor server.

``page`` writes it, from what the other modules collect: ``about_run`` the texts of one run,
``curves`` the metrics, ``runs_table`` a row per run, ``timeline`` what happened when.  Charts are
drawn in the browser by plotly.js, which the Python package ``plotly`` ships; it and the numbers
stand in the file compressed.
"""
