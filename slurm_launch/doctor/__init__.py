"""`slurm-launch doctor`: what a cluster is like, what of it a Ray job minds, and a profile for it.

cluster.py asks Slurm, trials.py tries sbatch, machine.py looks at this host, job.py asks the nodes; advice.py and
nodes.py judge the answers, profile.py writes them down.
"""
