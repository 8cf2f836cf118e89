"""Slurm's commands and their output: argument lists, parsers, hostlists, times, array IDs, and the client that runs the
queries. Independent of specs and runs.
"""
