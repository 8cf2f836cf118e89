unset reason && eval "$(declare -f end | sed '1s/end/end_link/')" # what every job does at its end
end() { # and before that: cancels the pending links if the chain is done
  local how=notok && [[ $2 != ok ]] || how=ok
  [[ ! ${reason-} ]] || how=$slaunch_while # after a warning it has neither failed nor finished, whatever its code: the chain continues
  trap '' TERM
  if [[ $how != "$slaunch_while" ]] && ((slaunch_link < SLURM_ARRAY_TASK_MAX)); then
    if scancel --state=PENDING "$SLURM_ARRAY_JOB_ID"; then
      say chain over link="$slaunch_link" "this link ended $how: the links after it do not run (--chain-while $slaunch_while)"
    else
      say warning "this link ended $how, but the links after it could not be canceled: run scancel $SLURM_ARRAY_JOB_ID"
    fi
  fi
  end_link "$@"
}
