#!/bin/bash
# `ray symmetric-run` of the installed Ray, started as documented: one step on all nodes. Arguments: the command.
export BENCH_BEGIN=$EPOCHREALTIME
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) port=6379
ip=$(getent ahostsv4 "$head" | head -n 1 | cut -d ' ' -f 1)
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=120 # the default of 30 s may be too short for six Ray nodes on few cores
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" ray symmetric-run --address "$ip:$port" \
  --min-nodes "$SLURM_JOB_NUM_NODES" --num-cpus="$SLURM_CPUS_PER_TASK" -- "$@"
