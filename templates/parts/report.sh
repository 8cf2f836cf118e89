say() { printf '[slurm-launch] %(%FT%T%z)T %s\n' -1 "$*"; } # a line in the log, for people and for `slurm-launch status`
end() { # CODE OUTCOME [CAUSE HINT [NODE]]: the only exit. Stops what was started, and logs the outcome.
  trap - EXIT && trap '' TERM # nothing interrupts the clean-up
  [[ ! ${job_dir-} ]] || stop_cluster "$2"
  say end outcome="$2" code="$1" phase="$phase${5:+ node=$5}${ready_at:+ bring-up=${ready_at}s}${command_took:+ command=${command_took}s}" job="$SLURM_JOB_ID" total="${SECONDS}s${3:+ cause=\"${3//\"/\'}\" hint=\"$4\"}"
  exit "$1"
}
asked_to_end() { # by Slurm, which knows the reason, or by someone else
  case $(timeout 2 squeue -h -t all -j "$SLURM_JOB_ID" -o %r) in
    TimeLimit*) end 74 time-limit 'the time limit was reached' 'request more with --time' ;;
    *Node*) end 72 node-lost 'Slurm has lost a node of the job' 'sinfo -R may show why; submit again' ;;
    *) end 75 ended-from-outside "the job was terminated externally ($ended_by)" 'scancel or preemption: sacct shows which' ;;
  esac
}
environment_failed() { end 73 environment-failed "failed: $1" 'fix the environment options, or this script' "${SLURMD_NODENAME-}"; }
trap 'end 77 script-failed "the script itself ended" "does the environment code call exit? otherwise see the lines above"' EXIT
trap '[[ ! ${command_pid-} ]] || kill -USR1 -- "-$command_pid"' USR1 && trap '[[ ! ${command_pid-} ]] || kill -USR2 -- "-$command_pid"' USR2 # --signal
unset ended_by command_pid job_dir && trap 'ended_by=SIGTERM' TERM && trap : PIPE && phase=environment SECONDS=0
