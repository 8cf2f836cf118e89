export SLAUNCH_RUN_DIR=$slaunch_folder
(umask 077 && mkdir -p "$SLAUNCH_RUN_DIR") || environment_failed "mkdir $SLAUNCH_RUN_DIR"
