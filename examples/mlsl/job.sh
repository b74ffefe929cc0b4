#!/usr/bin/env bash
# An Intel Caffe job on 4 nodes, one process each, with libmlsl of tutti: PBS starts it (qsub job.sh).
# Adapt TUTTI_PREFIX, CAFFE and the solver. Caffe takes its rank from MPI, so Open MPI's mpirun starts the processes.
#PBS -N caffe
#PBS -V
#PBS -l select=4:ncpus=68:mpiprocs=1:ompthreads=68
#PBS -l walltime=04:00:00

set -euo pipefail

cd "${PBS_O_WORKDIR:-.}"
TUTTI_PREFIX=${TUTTI_PREFIX:-/usr/local}
CAFFE=${CAFFE:-caffe}
source "$TUTTI_PREFIX/intel64/bin/mlslvars.sh"

# Two progress threads carry gradients; OpenMP computes on the other cores.
export MLSL_NUM_SERVERS=2 MLSL_SERVER_AFFINITY=66,67
export KMP_AFFINITY=verbose,granularity=fine,compact=1 KMP_BLOCKTIME=1 KMP_SETTINGS=1 OMP_NUM_THREADS=60

# Each node once. Lines begin with the rank, as with -prepend-rank of Intel's mpirun.
hosts=$(mktemp)
trap 'rm -f "$hosts"' EXIT
sort -u "${PBS_NODEFILE:?start this script with qsub}" >"$hosts"
mpirun -n "$(wc -l <"$hosts")" --hostfile "$hosts" --map-by ppr:1:node --bind-to none --tag-output \
  -x MLSL_ROOT -x LD_LIBRARY_PATH -x MLSL_NUM_SERVERS -x MLSL_SERVER_AFFINITY \
  -x KMP_AFFINITY -x KMP_BLOCKTIME -x KMP_SETTINGS -x OMP_NUM_THREADS \
  "$CAFFE" train --solver "${1:-models/intel_optimized_models/multinode/alexnet_4nodes/solver.prototxt}"
