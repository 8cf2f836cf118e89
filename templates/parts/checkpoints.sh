# What the command finds in every attempt of the job: the number of this one, and a directory.
set_up_checkpoints() {
  #% if spec.chain
  slaunch_link=${SLURM_ARRAY_TASK_ID:-0} # the chain is an array; each task is a link
  export SLAUNCH_LINK=$slaunch_link
  #% endif
  #% if spec.handles_restarts
  export SLAUNCH_RESTART=$slaunch_restart
  #% endif
  export SLAUNCH_RUN_DIR=$slaunch_checkpoint_dir
  (umask 077 && mkdir -p "$SLAUNCH_RUN_DIR") || environment_failed "mkdir $SLAUNCH_RUN_DIR"
  #% if spec.handles_restarts
  # Ray's logs of the previous attempt keep their own name.
  if ((slaunch_restart)) && [[ -e $slaunch_run.ray ]]; then
    mv -T "$slaunch_run.ray" "$slaunch_run.ray-$((slaunch_restart - 1))"
  fi
  #% endif
}
