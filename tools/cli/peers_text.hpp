// `tutti info --peers`: which transport carries messages between which ranks of this job, and why.
// Knows worlds; no collective.
#pragma once

namespace tutti::tool {

// Collective over the ranks of the job; rank 0 prints. Returns an exit status.
int print_peers(bool is_json);

}  // namespace tutti::tool
