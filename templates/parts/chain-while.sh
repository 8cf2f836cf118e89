unset reason && eval "$(declare -f end | sed '1s/end/end_link/')" # what every job does at its end
end() { # and before it: the links that still wait may not be wanted any more
  local how=notok && [[ $2 != ok ]] || how=ok
  [[ ! ${reason-} ]] || how=$slaunch_while # what ends after a warning has neither failed nor is it done, whatever its code: on with it
  trap '' TERM
  if [[ $how != "$slaunch_while" ]] && ((slaunch_link < SLURM_ARRAY_TASK_MAX)); then
    if scancel --state=PENDING "$SLURM_ARRAY_JOB_ID"; then
      say chain over link="$slaunch_link" "this link ended $how: those after it do not run (--chain-while $slaunch_while)"
    else
      say warning "this link ended $how, but those after it could not be cancelled: scancel $SLURM_ARRAY_JOB_ID"
    fi
  fi
  end_link "$@"
}
