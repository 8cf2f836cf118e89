say() { printf '[slurm-launch] %(%FT%T%z)T %s\n' -1 "$*"; } # a line in the log, for people and for `slurm-launch status`
end() { # CODE OUTCOME [CAUSE HINT [NODE]]: the only exit. Stops what was started, requeues the job if it should run again, and logs the outcome.
  local outcome=$2 why_not=''
  trap - EXIT && trap '' TERM USR1 # nothing interrupts the clean-up
  [[ ${reason-} || $phase/$1/$2 != command/85/command-failed || ! $slaunch_restarts ]] || reason=exit-code # the command requests a restart
  [[ ! ${reason-} ]] || outcome=ok # no failure, so Ray's logs are not kept
  [[ ${reason-} || $phase/$2 != command/node-lost || ! $slaunch_restarts ]] || reason='node-lost' # a failure, but other nodes may work
  [[ ! ${job_dir-} ]] || stop_cluster "$outcome"
  if [[ ${reason-} && $slaunch_restarts ]]; then
    if runs_again; then
      [[ $reason == node-lost ]] || set -- 0 requeued # for a lost node, the log keeps the cause
      set -- 0 requeued "${@:3}"
    else
      case $reason in
        exit-code) set -- "$1" "$2" "$why_not" 'submit again: the command requested a restart' ;;
        node-lost) set -- 72 "$2" "$3, and $why_not" "$4" "${5-}" ;;
        preemption) set -- 75 ended-from-outside "preempted, and $why_not" 'submit again' ;;
        *) set -- 74 time-limit "the time limit was reached, and $why_not" 'submit again, or request more with --time or --max-restarts' ;;
      esac
    fi
  fi
  say end outcome="$2" code="$1" phase="$phase${5:+ node=$5}${ready_at:+ bring-up=${ready_at}s}${command_took:+ command=${command_took}s}" job="$SLURM_JOB_ID" total="${SECONDS}s${3:+ cause=\"${3//\"/\'}\" hint=\"$4\"}"
  exit "$1"
}
runs_again() { # true if the job will run again: Slurm has requeued it already, or does so on request; otherwise why_not has the reason
  local said job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID} # the array's own ID would mean all its tasks
  ask_slurm
  if [[ $fate == cancelled ]]; then why_not='it was canceled' && return 1; fi # Slurm would requeue that one, too
  if [[ $fate != requeued ]]; then
    ((slaunch_restart < slaunch_restarts)) || { why_not="it has been requeued $slaunch_restart time$( ((slaunch_restart == 1)) || echo s) (--max-restarts $slaunch_restarts)" && return 1; }
    for _ in {1..5}; do
      ! said=$(timeout 20 scontrol requeue "$job" 2>&1) && [[ $said != *'pending execution'* ]] || break # pending: the previous request worked
      why_not="Slurm did not requeue it: ${said:-no answer}"
      [[ ! $said || $said == *[Cc]ontact* || $said == *'timed out'* ]] || return 1
      sleep 2 && false
    done || return 1
  fi
  say requeue restart="$((slaunch_restart + 1))" reason="$reason"
}
ask_slurm() { # queries the job: sets fate (requeued, preempted, grace, limit, lost, runs, cancelled or nothing), and the times began and ends
  local job && fate='' began='' ends=''
  job=$(SLURM_TIME_FORMAT=standard timeout 9 scontrol show job -o "$SLURM_JOB_ID" | grep "^JobId=$SLURM_JOB_ID ") || return 0
  [[ ! $job =~ \ StartTime=(2[^ ]*) ]] || began=${BASH_REMATCH[1]}
  [[ ! $job =~ \ EndTime=(2[^ ]*) ]] || ends=${BASH_REMATCH[1]}
  case $job in
    *" PreemptTime=${ends:-?}"*) fate=preempted ;; # during a grace period, the end is later
    *' JobState=RUNNING '*' PreemptTime=2'*) fate=grace ;;
    *' JobState=RUNNING '*) fate=runs ;;
    *' Reason=TimeLimit '*) fate=limit ;;
    *' Reason='*Node*' Dependency='*) fate=lost ;;
    *) fate=cancelled ;;
  esac
  [[ ! $job =~ \ Restarts=([0-9]+) ]] || ((BASH_REMATCH[1] <= slaunch_restart)) || fate=requeued
}
asked_to_end() { # called repeatedly while ended_by is set. SIGTERM means now; a warning, or preemption with a grace period, means soon.
  local left
  case $ended_by/${until-} in
    SIGTERM/*) # only Slurm knows the reason
      ask_slurm && case $fate in
        requeued) reason=slurm ;;
        preempted) reason=preemption ;;
        limit) end 74 time-limit 'the time limit was reached' 'request more with --time; --signal-before gives the command time to save its work' ;;
        lost) reason='' && end 72 node-lost 'Slurm has lost a node of the job' 'sinfo -R may show why; submit again' ;;
        *) reason='' ;;
      esac
      end 75 ended-from-outside "the job was terminated externally ($ended_by)" 'scancel or preemption: sacct shows which' ;;
    */) # the first time
      reason=time-limit && [[ $phase != command ]] || signal_command "$slaunch_signal"
      [[ $ended_by != preemption ]] || pause 1 # Slurm shows the grace period a moment later
      ask_slurm && [[ $fate != grace ]] || reason=preemption
      [[ $phase == command ]] || end 74 time-limit 'the time limit was reached before the command started' 'request more with --time'
      left=$(($(date -d "${ends:-1970-01-01}" +%s) - $(date +%s))) && ((left > 0)) || left=$((slaunch_warning ? slaunch_warning : 30))
      [[ $reason == preemption ]] || ((left <= slaunch_warning + 60)) || left=$((slaunch_warning + 60)) # Slurm may be up to a minute early; or someone else sent it
      left=$((left - (left > 60 ? 20 : left / 3))) until=$((SECONDS + left)) # the rest is for the cleanup
      say saving seconds="$left" signal="$slaunch_signal" reason="$reason" ;;
    *) ((SECONDS < until)) || end 74 time-limit 'the command did not end in time after the warning' 'a longer --signal-before gives it more time' ;;
  esac
}
signal_command() { # SIGNAL: to the command's processes, except a shell that only waits for another one: it would exit and leave that one running
  local pid waits caught group=$command_pid
  [[ ! -s $job_dir/group ]] || group=$(<"$job_dir/group") # of a command that runs in its own step, see in_head_container
  while read -r pid waits; do
    caught=$(awk '/^SigCgt/ { print substr($2, length($2) - 7) }' "/proc/$pid/status" 2>/dev/null)
    if ((!waits || 16#${caught:-0} >> $(kill -l "$1") - 1 & 1)); then kill -s "$1" "$pid" 2>/dev/null; fi
  done < <(cat /proc/[0-9]*/stat 2>/dev/null | awk -v group="$group" '
    { id = $1; sub(/.*\) /, ""); if ($3 == group) parent[id] = $2 }
    END { for (id in parent) waits[parent[id]] = 1; for (id in parent) print id, id in waits }')
}
environment_failed() { end 73 environment-failed "failed: $1" 'fix the environment options, or this script' "${SLURMD_NODENAME-}"; }
warned() { # Slurm's USR1 is for the script with --signal-before, otherwise for the command
  if ((slaunch_warning)); then ended_by=${ended_by:-warning} && [[ $phase != environment ]] || asked_to_end; elif [[ ${command_pid-} ]]; then kill -USR1 -- "-$command_pid"; fi
}
trap 'end 77 script-failed "the script itself ended" "does the environment code call exit? otherwise see the lines above"' EXIT
trap warned USR1 && trap '[[ ! ${command_pid-} ]] || kill -USR2 -- "-$command_pid"' USR2
unset ended_by reason until command_pid job_dir && trap 'ended_by=SIGTERM' TERM && trap : PIPE && phase=environment SECONDS=0
# Ray's logs of the previous attempt keep their own name.
export SLAUNCH_RESTART=${SLURM_RESTART_COUNT:-0} && slaunch_restart=$SLAUNCH_RESTART
((!slaunch_restart)) || [[ ! -e $slaunch_run.ray ]] || mv -T "$slaunch_run.ray" "$slaunch_run.ray-$((slaunch_restart - 1))"
# Without --time only Slurm knows the limit. If the warning came at once, every attempt would end like this one.
if ((slaunch_warning)) && ask_slurm && [[ $began && $ends ]]; then
  slaunch_whole=$(($(date -d "$ends" +%s) - $(date -d "$began" +%s)))
  ((slaunch_whole > slaunch_warning)) || end 74 time-limit "the job's time limit is $slaunch_whole s, not more than --signal-before $slaunch_warning" 'use a longer --time, or a shorter --signal-before'
fi
