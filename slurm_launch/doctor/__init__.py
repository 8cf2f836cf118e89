"""`slurm-launch doctor`: what a cluster offers, what a Ray job will encounter there, and a profile for it.

cluster_facts, sbatch_trials, this_host and probe_job collect facts; cluster_advice and node_advice assess them;
profile_writer saves them.
"""
