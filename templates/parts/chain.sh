# The chain: this job runs several times, one after another. Each is a link.
slaunch_link=${SLURM_ARRAY_TASK_ID:-0} && export SLAUNCH_LINK=$slaunch_link
