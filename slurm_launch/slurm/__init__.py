"""Slurm's language: commands, parsers, hostlists, times and array IDs, and the client that runs the queries. Knows
no spec and no run.
"""
