"""The files of a run: their names, the record, the index of runs, the log's phases. Runs no Slurm command."""
