// The transposes of sparse matrices, for gradients of dense operands.
//
// The gradient of A @ x for x is A.t() @ grad. ATen gives A.t() the layout CSC: it has A's tensors.
// A product needs its rows, which takes a sort. So the rows are kept, and the device makes them
// again after a write to A's index tensors.
#pragma once

#include <ATen/SparseCsrTensorUtils.h>

#include <array>
#include <atomic>
#include <string>

#include "override/predicates.h"
#include "spmm/binding/spmm_structures.h"

namespace gpuopt::overriding {

// The tensors of a matrix in layout CSR, or of the transpose of one in layout CSC.
struct SparseMembers {
  const Tensor &ptr, &index, &value;

  explicit SparseMembers(const Tensor& matrix)
      : SparseMembers(*at::sparse_csr::get_sparse_csr_impl(matrix)) {}

 private:
  explicit SparseMembers(const at::SparseCsrTensorImpl& impl)
      : ptr(impl.compressed_indices()), index(impl.plain_indices()), value(impl.values()) {}
};

constexpr const char* kOwner = "override ";      // of kept transposes
inline std::atomic<int64_t> transposes_made{0};  // by the host
constexpr int64_t kMostChanges = 2;              // then a matrix is sorted in each use

// The rows of the transpose of a matrix, where `columns` is how many rows that has.
inline spmm::TransposedRows transpose_of(c10::DispatchKeySet key, const SparseMembers& matrix,
                                         int64_t columns) {
  const auto& [ptr, index, value] = matrix;
  const auto compute = [&]() -> spmm::TransposedRows {
    transposes_made.fetch_add(1, std::memory_order_relaxed);
    auto [t_ptr, t_index, t_entry] = redispatch(spmm::Transpose{ptr, index, columns}, key);
    return {t_ptr, t_index, t_entry};
  };
  const spmm::StructureKernels& kernels = spmm::kernels_for(ptr);
  // A graph would read memory that may be freed before the graph. Meta tensors have none to
  // compare.
  if (kernels.is_capturing() || ptr.is_meta()) return compute();

  const std::array<Tensor, 2> sources{ptr, index};
  const std::string name = kOwner + std::to_string(columns);
  spmm::Structures structures;  // its lock keeps the launches of two threads apart
  const spmm::Structure* const found = structures.find(sources, name);
  if (found == nullptr) {
    const spmm::TransposedRows rows = compute();
    spmm::Structure& made =
        structures.add(sources, name, spmm::Results({rows.ptr, rows.index, rows.entry}));
    made.changes = structures.counter(ptr.is_cuda());
    kernels.refuse_writes(made.fingerprint, sources);
    return rows;
  }
  auto* const changes = static_cast<int64_t*>(found->changes.mutable_data_ptr());
  // The device counts while the host reads. It is slow to sort where the host does not know of it.
  if (*static_cast<volatile int64_t*>(changes) >= kMostChanges) return compute();
  const auto part = [&](size_t k) { return *found->results.get(k); };
  const spmm::TransposedRows rows{part(0), part(1), part(2)};
  kernels.update({ptr, index, found->fingerprint, rows, changes});
  return rows;
}

}  // namespace gpuopt::overriding
