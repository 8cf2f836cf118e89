"""Rehearsals: the generated script on one machine without Slurm, with fake Slurm commands (stand-ins) first in PATH.

rehearse submits as usual. The fake sbatch starts node_daemon, which runs the script and ends what the job leaves; the
fake srun runs each task on a "node" with its own loopback address. They share a folder (job), removed at the end.
"""
