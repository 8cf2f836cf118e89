# A folder for checkpoints, the same in every life of the job and in every link of a chain.
export SLAUNCH_RUN_DIR=${slaunch_run%"_${slaunch_link-}"}.run
[[ -d $SLAUNCH_RUN_DIR ]] || mkdir -m 700 "$SLAUNCH_RUN_DIR" || environment_failed "mkdir $SLAUNCH_RUN_DIR"
