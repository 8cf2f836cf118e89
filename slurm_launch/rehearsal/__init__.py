"""The same script on one machine without Slurm: stand-ins for sbatch, srun, scontrol and squeue, and who plays them.

rehearse.py is the user's side. It puts the stand-ins first in PATH and submits as ever. sbatch.py then starts
slurmd.py, which runs the script as a node daemon would and ends whatever the job has left; srun.py runs each task on a
"node" with a loopback address of its own. What they share is in a folder (job.py) that goes with the rehearsal.
"""
