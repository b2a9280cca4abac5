#!/bin/bash
# One shard in each task of a Slurm array; all nodes mount DIR. A task that fails is repeated by itself:
#   sbatch slurm.sh DIR
#   sbatch --array=3 slurm.sh DIR
#   cat shard-*.json | shards -add # when all tasks have ended with status 0
#SBATCH --job-name=shards
#SBATCH --array=0-7
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --output=shard-%a.json
#SBATCH --error=shard-%a.err
set -euo pipefail
shards=8 # as many as the array has when all of it runs
exec shards -shards "$shards" -shard "$SLURM_ARRAY_TASK_ID" -- "${1:?usage: sbatch slurm.sh DIR}"
