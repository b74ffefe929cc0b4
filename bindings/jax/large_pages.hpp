// Memory that XLA has just allocated for a result. Knows no operation.
#pragma once

#include <cstddef>

namespace tutti::jax {

// Asks for large pages in a result of some MiB: no page backs it yet, and a fault for each 4 KiB costs more than the transfer.
void prefer_large_pages(void* data, std::size_t bytes);

}  // namespace tutti::jax
