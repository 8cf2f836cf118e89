# The chain: this job runs several times, one after another. Each is a link, and all have one directory for what they hand on.
slaunch_link=${SLURM_ARRAY_TASK_ID:-0} && export SLAUNCH_LINK=$slaunch_link SLAUNCH_RUN_DIR=${slaunch_run%"_$slaunch_link"}.run
[[ -d $SLAUNCH_RUN_DIR ]] || mkdir -m 700 "$SLAUNCH_RUN_DIR" || environment_failed "mkdir $SLAUNCH_RUN_DIR"
