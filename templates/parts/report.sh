# One line in the log, for a person and for `slurm-launch watch`.
say() { printf '[slurm-launch] %(%FT%T%z)T %s\n' -1 "$*"; }
# The time in milliseconds, in $ms. (EPOCHREALTIME came with bash 5; some locales write it with a comma.)
clock() { ms=${EPOCHREALTIME:-$(date +%s.%6N)} ms=${ms/[.,]/} ms=${ms%???}; }
# end CODE OUTCOME [CAUSE HINT [NODE]]: the only way out. Stops what we started, and tells how it went.
end() {
  trap - EXIT && trap '' TERM # nothing interrupts the clean-up
  [[ ! ${3-} ]] || say failed "$3"
  stop_command
  stop_cluster "$2"
  clock
  say end outcome="$2" code="$1" phase="$phase${5:+ node=$5}" bring-up="$((${ready_at:-$ms} - began))ms" \
    command="$((${command_ended_at:-$ms} - ${ready_at:-$ms}))ms" total="$((ms - began))ms${3:+ cause=\"$3\" hint=\"$4\"}"
  exit "$1"
}
environment_failed() { end 73 environment-failed "$1" 'mend the environment options, or this script' "${SLURMD_NODENAME-}"; }
stop_command() { :; } && stop_cluster() { :; } # as long as there is nothing to stop
trap 'end 77 script-failed "the script itself failed" "look at the lines above"' EXIT
trap 'ended_by=SIGTERM' TERM
clock && began=$ms
