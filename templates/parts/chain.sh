#% if spec.chain_while != "any"
# Cancels the pending links if the chain is done. After a warning the command has neither failed nor
# finished, whatever its code: then the chain continues.
cancel_later_links() {
  local how=notok
  [[ $slaunch_outcome != ok ]] || how=ok
  #% if spec.handles_restarts
  if [[ $slaunch_reason ]]; then
    return 0
  fi
  #% endif
  [[ $how != "$slaunch_chain_while" ]] || return 0
  ((slaunch_link < SLURM_ARRAY_TASK_MAX)) || return 0
  if scancel --state=PENDING "$SLURM_ARRAY_JOB_ID"; then
    say chain over link="$slaunch_link" "this link ended $how:" \
      "the links after it do not run (--chain-while $slaunch_chain_while)"
  else
    say warning "this link ended $how, but the links after it could not be canceled:" \
      "run scancel $SLURM_ARRAY_JOB_ID"
  fi
}
#% endif
