"""Runs on disk: run directories, sweeps, and how they are found."""
