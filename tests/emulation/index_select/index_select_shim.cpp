// C entry points to the emulated launcher of index_select, for test_index_select.py.
#include "index_select/index_select.h"

using namespace gpuopt::index_select;

// Gathers rows. Returns the bytes of an access, 0 if vectors are loaded from anywhere, or -1.
extern "C" int gather(uint64_t self, uint64_t index, uint64_t out, int long_index, int64_t bins,
                      int64_t entries, int64_t index_stride, int64_t row_bytes, int64_t bin_bytes,
                      uint64_t few_accesses, int64_t tables, int64_t table_bytes) {
  Gather gather;
  gather.self = reinterpret_cast<const void*>(self);
  gather.index = reinterpret_cast<const void*>(index);
  gather.out = reinterpret_cast<void*>(out);
  gather.long_index = long_index != 0;
  gather.bins = bins;
  gather.entries = entries;
  gather.index_stride = index_stride;
  gather.row_bytes = row_bytes;
  gather.bin_bytes = bin_bytes;
  gather.tables = tables;
  gather.table_bytes = table_bytes;
  const Plan planned = plan(gather, few_accesses);
  if (launch(planned, nullptr) != cudaSuccess) return -1;
  return planned.anywhere ? 0 : static_cast<int>(planned.access_bytes);
}
