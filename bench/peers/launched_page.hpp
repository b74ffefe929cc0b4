// The shared page of ranks that a launcher started. Knows no library under test, and no protocol.
#pragma once

#include <unistd.h>

#include <cstddef>

#include "bench/harness/shared_page.hpp"

namespace tutti::bench {

// Rank 0 creates the page and says where it is. `broadcast(memory, bytes)` carries bytes from rank 0 to all, by
// the library under test. Every rank calls it once.
template <class Broadcast>
SharedPage make_launched_page(int rank, int ranks, Broadcast&& broadcast) {
  int where[2] = {0, 0};
  if (rank == 0) {
    SharedPage page = SharedPage::create(ranks);
    where[0] = ::getpid();
    where[1] = page.fd();
    broadcast(where, sizeof where);
    page.barrier();
    return page;
  }
  broadcast(where, sizeof where);
  SharedPage page = SharedPage::open(where[0], where[1], rank, ranks);
  page.barrier();
  return page;
}

}  // namespace tutti::bench
