#!/bin/bash
# The procedure of Ray's documentation, rewritten: the head on a fixed port, sleep 30, the workers one by one with sleep 5
# each, then the command. Arguments: the command.
export BENCH_BEGIN=$EPOCHREALTIME
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]} port=6379
ip=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address)
ip=$(tr ' ' '\n' <<<"$ip" | grep -F . | head -n 1) # the IPv4 one
srun --nodes=1 --ntasks=1 --nodelist="$head" \
  ray start --head --node-ip-address="$ip" --port="$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
sleep 30
for node in "${nodes[@]:1}"; do
  srun --nodes=1 --ntasks=1 --nodelist="$node" ray start --address="$ip:$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
  sleep 5
done
RAY_ADDRESS=$ip:$port "$@"
