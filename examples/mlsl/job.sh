#!/usr/bin/env bash
# An Intel Caffe job on 4 nodes, one process each, with libmlsl of tutti: PBS starts it (qsub job.sh).
# Adapt TUTTI_PREFIX, CAFFE and the solver. `tutti run` starts the processes over ssh.
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

# host:1 for each node of the job. Lines of a rank begin with its number, as with mpirun -prepend-rank.
hosts=$(sort -u "${PBS_NODEFILE:?start this script with qsub}" | sed 's/$/:1/' | paste -sd, -)
exec tutti run -H "$hosts" -n "$(sort -u "$PBS_NODEFILE" | wc -l)" -x KMP_AFFINITY -x KMP_BLOCKTIME -x KMP_SETTINGS \
  "$CAFFE" train --solver "${1:-models/intel_optimized_models/multinode/alexnet_4nodes/solver.prototxt}"
