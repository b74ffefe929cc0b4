// The frame of a peer's program whose ranks an MPI launcher starts. Knows MPI, no library under test, and no protocol.
#pragma once

#include <mpi.h>
#include <unistd.h>

#include <cstddef>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bench/harness/shared_page.hpp"
#include "bench/peers/mapped_rank.hpp"
#include "bench/peers/peer_main.hpp"

namespace tutti::bench {

inline void broadcast_from_first(void* memory, std::size_t bytes) {
  MPI_Bcast(memory, static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD);
}

// Rank 0 creates the page and says where it is. Every rank calls it once.
inline SharedPage make_launched_page(int rank, int ranks) {
  int where[2] = {0, 0};
  if (rank == 0) {
    SharedPage page = SharedPage::create(ranks);
    where[0] = ::getpid();
    where[1] = page.fd();
    broadcast_from_first(where, sizeof where);
    page.barrier();
    return page;
  }
  broadcast_from_first(where, sizeof where);
  SharedPage page = SharedPage::open(where[0], where[1], rank, ranks);
  page.barrier();
  return page;
}

// The whole of main(). `make_library(rank, ranks)` makes the adapter once MPI runs, at the thread level that it needs.
// `name`: of the library, for errors.
template <class MakeLibrary>
int run_under_mpi(std::string_view name, int argc, char** argv, int thread_level, MakeLibrary make_library) {
  bind_as_mapped(launched_rank());
  int provided = 0;
  MPI_Init_thread(&argc, &argv, thread_level, &provided);
  try {
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    auto library = make_library(rank, ranks);
    for (int i = 1; i < argc; ++i) {
      if (!parse_common_argument(library, argv[i]))
        throw std::invalid_argument(std::string("unknown argument: ") + argv[i]);
    }
    SharedPage page = make_launched_page(rank, ranks);
    serve(library, page);
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << std::endl;
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}

}  // namespace tutti::bench
