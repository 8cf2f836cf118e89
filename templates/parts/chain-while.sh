eval "$(declare -f say | sed '1s/say/say_plainly/')"
say() { # and before the line that tells the end: the links that still wait may not be wanted any more
  [[ $1 != end ]] || link_ends "${2#outcome=}"
  say_plainly "$@"
}
link_ends() { # OUTCOME of this link; one that will run again has not ended
  local how=notok && [[ $1 != ok ]] || how=ok
  [[ $how != "$slaunch_while" && $1 != requeued ]] && ((slaunch_link < SLURM_ARRAY_TASK_MAX)) || return 0
  if scancel --state=PENDING "$SLURM_ARRAY_JOB_ID"; then
    say chain over link="$slaunch_link" "this link ended $how: those after it do not run (--chain-while $slaunch_while)"
  else
    say warning "this link ended $how, but those after it could not be cancelled: scancel $SLURM_ARRAY_JOB_ID"
  fi
}
