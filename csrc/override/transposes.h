// The transposes of sparse matrices, for gradients of dense operands.
//
// The gradient of A @ x for x is A.t() @ grad. ATen gives A.t() the layout CSC: it has A's tensors.
// A product needs its rows, which takes a sort. So the rows are kept for as long as A's index
// tensors live, with a fingerprint of the numbers that they were made of. Each use computes the
// fingerprint on the GPU, and sorts again if it is another one (spmm/spmm_transpose.h). So writes
// are seen that no version counter counts: of a collective, of DLPack, of a replayed CUDA graph.
// Matrices that are written to again and again are sorted in each use.
#pragma once

#include <ATen/SparseCsrTensorUtils.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "override/predicates.h"
#include "spmm/binding/spmm_transpose.h"

namespace gpuopt::overriding {

using spmm::TransposedRows;

// The tensors of a matrix in layout CSR, or of the transpose of one in layout CSC.
struct SparseMembers {
  const Tensor &ptr, &index, &value;

  explicit SparseMembers(const Tensor& matrix)
      : SparseMembers(*at::sparse_csr::get_sparse_csr_impl(matrix)) {}

 private:
  explicit SparseMembers(const at::SparseCsrTensorImpl& impl)
      : ptr(impl.compressed_indices()), index(impl.plain_indices()), value(impl.values()) {}
};

// Whether the current stream records a CUDA graph. Set where the library has CUDA kernels.
inline std::atomic<bool (*)()> is_capturing{nullptr};

class Transposes {
 public:
  // The rows of the transpose of a matrix, where `columns` is how many rows that has.
  TransposedRows of(c10::DispatchKeySet key, const SparseMembers& matrix, int64_t columns) {
    const c10::Device device = matrix.ptr.device();
    const auto capturing = is_capturing.load(std::memory_order_relaxed);
    const auto compute = [&]() -> TransposedRows {
      made_.fetch_add(1, std::memory_order_relaxed);
      auto [ptr, index, entry] =
          redispatch(spmm::Transpose{matrix.ptr, matrix.index, columns}, key);
      return {ptr, index, entry};
    };
    // A graph would read memory that may be freed before the graph.
    if (capturing != nullptr && device.is_cuda() && capturing()) return compute();
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    // The lock keeps the launches of two threads apart.
    const std::lock_guard<std::mutex> lock(mutex_);
    drop_dead();
    Entry& entry = entry_of(matrix, columns, stream);
    if (entry.is_often_written()) return compute();
    redispatch(spmm::TransposeKept{entry.kept, matrix.ptr, matrix.index, columns, entry.is_new,
                                   reinterpret_cast<int64_t>(entry.changes.data_ptr())},
               key);
    entry.is_new = false;
    return spmm::parts_of(entry.kept, matrix.index, columns);
  }

  // Frees the transposes of matrices that are gone.
  void forget_dead() {
    const std::lock_guard<std::mutex> lock(mutex_);
    drop_dead();
  }

  int64_t made() const { return made_.load(std::memory_order_relaxed); }

  // How many transposes are kept.
  int64_t kept() {
    const std::lock_guard<std::mutex> lock(mutex_);
    drop_dead();
    return static_cast<int64_t>(entries_.size());
  }

  void clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    drop_if([](const Entry&) { return true; });
  }

 private:
  static constexpr size_t kMostEntries = 64;
  static constexpr int64_t kMostChanges = 2;

  // The numbers that a tensor reads. A weak pointer keeps the storage's address from being given to
  // another storage.
  struct Identity {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    const void* data;
    int64_t size, stride;
    at::ScalarType dtype;

    explicit Identity(const Tensor& tensor)
        : storage(tensor.storage().getWeakStorageImpl()),
          data(tensor.const_data_ptr()),
          size(tensor.numel()),
          stride(tensor.stride(0)),
          dtype(tensor.scalar_type()) {}

    bool is(const Tensor& tensor) const {
      return storage._unsafe_get_target() == tensor.storage().unsafeGetStorageImpl() &&
             data == tensor.const_data_ptr() && size == tensor.numel() &&
             stride == tensor.stride(0) && dtype == tensor.scalar_type();
    }
  };

  struct Entry {
    Identity ptr, index;
    int64_t columns;
    c10::Stream stream;
    Tensor kept, changes;  // of _transpose_kept. `changes` is in pinned memory for CUDA
    bool is_new = true;

    // Sorting again is slow where the host does not know of it. The GPU counts it in the memory of
    // the host.
    bool is_often_written() const {
      const auto* count = static_cast<const volatile int64_t*>(changes.const_data_ptr());
      return *count >= kMostChanges;
    }
    bool is_dead() const { return ptr.storage.expired() || index.storage.expired(); }
  };

  void drop_dead() {
    drop_if([](const Entry& entry) { return entry.is_dead(); });
  }

  // A kernel in flight may still write to a counter. So counters are never freed, and the
  // next entry takes one over. A late write costs it one sort at most.
  template <typename F>
  void drop_if(const F& is_dropped) {
    std::erase_if(entries_, [&](const Entry& entry) {
      if (!is_dropped(entry)) return false;
      if (entry.kept.is_cuda()) free_counters_.push_back(entry.changes);
      return true;
    });
  }

  Tensor counter(bool is_cuda) {
    if (!is_cuda || free_counters_.empty()) {
      return at::zeros({1}, at::TensorOptions(at::kLong).pinned_memory(is_cuda));
    }
    const Tensor counter = free_counters_.back();
    free_counters_.pop_back();
    *static_cast<int64_t*>(counter.mutable_data_ptr()) = 0;  // zero_() minds inference mode
    return counter;
  }

  // The entry of a matrix, which is new if there is none.
  Entry& entry_of(const SparseMembers& matrix, int64_t columns, c10::Stream stream) {
    for (Entry& entry : entries_) {
      if (entry.ptr.is(matrix.ptr) && entry.index.is(matrix.index) && entry.columns == columns &&
          entry.stream == stream) {
        return entry;
      }
    }
    made_.fetch_add(1, std::memory_order_relaxed);
    const Tensor kept =
        at::empty({spmm::kept_numbers(matrix.ptr, matrix.index, columns)}, matrix.ptr.options());
    kept.narrow(0, 0, spmm::fingerprint_numbers(matrix.ptr)).zero_();
    if (entries_.size() == kMostEntries) {
      drop_if([&](const Entry& entry) { return &entry == entries_.data(); });
    }
    entries_.push_back({Identity(matrix.ptr), Identity(matrix.index), columns, stream, kept,
                        counter(matrix.ptr.is_cuda())});
    return entries_.back();
  }

  std::atomic<int64_t> made_{0};
  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<Tensor> free_counters_;
};

// Never destroyed: at exit, the allocator may be gone already.
inline Transposes& transposes() {
  static auto& all = *new Transposes();
  return all;
}

}  // namespace gpuopt::overriding
