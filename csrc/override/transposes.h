// The transposes of sparse matrices, for gradients of dense operands.
//
// The gradient of A @ x for x is A.t() @ grad. ATen gives A.t() the layout CSC: it has A's tensors.
// A product needs its rows, which takes a sort. So the sort is done once, and kept for as long as
// A's index tensors live and are not written to.
//
// Which writes are seen? A tensor and its views count writes in one version counter. The members of
// a sparse tensor may belong to a user, with a counter of theirs, and writes to what
// A.crow_indices() returns count in A's own counter. A.t() has A's counter, too, but its members
// are aliases that were made below autograd, with counters that nobody else has. So transposes are
// only kept for matrices that were multiplied before, in layout CSR, with gradients enabled, and
// that are no views: note() keeps the counters of such a matrix. Values may change, unless they are
// written to through A.values(): that counts as a write to A, and costs another sort.
//
// As in autograd, a write that no counter of the matrix counts is not seen: one through .data, or
// one to a tensor from whose sparse matrix this matrix took its members.
#pragma once

#include <ATen/SparseCsrTensorUtils.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "override/predicates.h"
#include "spmm/binding/spmm_ops.h"

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

// Rows of entries, and where the value of each entry is.
struct TransposedRows {
  Tensor ptr, index, entry;
};

// C++ lets an explicit instantiation name a private member.
template <const auto member>
struct CounterMember {
  friend const void* identity_of(const c10::VariableVersion& version) {
    return (version.*member).get();
  }
};
template struct CounterMember<&c10::VariableVersion::version_counter_>;
const void* identity_of(const c10::VariableVersion& version);

// Whether the current stream records a CUDA graph. Set where the library has CUDA kernels.
inline std::atomic<bool (*)()> is_capturing{nullptr};

class Transposes {
 public:
  // Remembers a CSR matrix whose gradient may be asked for.
  void note(const Tensor& matrix) {
    if (!at::GradMode::is_enabled() || !has_counters(matrix)) return;
    const SparseMembers members(matrix);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Entry* known = find(members)) return known->watch(matrix, members);
    entries_.erase(std::remove_if(entries_.begin(), entries_.end(),
                                  [](const Entry& entry) { return entry.is_dead(); }),
                   entries_.end());
    if (entries_.size() == kMostEntries) entries_.erase(entries_.begin());
    entries_.emplace_back(members).watch(matrix, members);
  }

  // The rows of the transpose of (ptr, index), where `columns` is how many rows that has. `matrix`
  // is in layout CSR, or its transpose in layout CSC.
  TransposedRows of(c10::DispatchKeySet key, const Tensor& matrix, int64_t columns) {
    const SparseMembers members(matrix);
    const auto compute = [&]() -> TransposedRows {
      made_.fetch_add(1, std::memory_order_relaxed);
      auto [ptr, index, entry] =
          redispatch(spmm::Transpose{members.ptr, members.index, columns}, key);
      return {ptr, index, entry};
    };
    const auto capturing = is_capturing.load(std::memory_order_relaxed);
    // A graph would read memory of the cache, which may be freed before the graph.
    if (capturing != nullptr && matrix.is_cuda() && capturing()) return compute();
    const c10::Stream stream =
        c10::impl::VirtualGuardImpl(matrix.device().type()).getStream(matrix.device());
    uint64_t changes = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      Entry* entry = find(members);
      if (entry != nullptr) {
        entry->watch(matrix, members);
        if (entry->rows.has_value() && entry->stream == stream && entry->columns == columns) {
          return *entry->rows;
        }
        changes = entry->changes;
      }
    }
    const TransposedRows rows = compute();
    const std::lock_guard<std::mutex> lock(mutex_);
    Entry* entry = find(members);
    if (entry == nullptr) return rows;
    entry->watch(matrix, members);
    // Else another thread wrote to the matrix meanwhile, or the entry is new.
    if (changes == entry->changes) {
      entry->rows = rows;
      entry->stream = stream;
      entry->columns = columns;
    }
    return rows;
  }

  int64_t made() const { return made_.load(std::memory_order_relaxed); }

  // How many transposes are kept.
  int64_t kept() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::count_if(entries_.begin(), entries_.end(), [](const Entry& entry) {
      return entry.rows.has_value() && !entry.is_dead();
    });
  }

  void clear() {
    std::vector<Entry> dropped;
    const std::lock_guard<std::mutex> lock(mutex_);
    dropped.swap(entries_);
  }

 private:
  static constexpr size_t kMostEntries = 64, kMostCounters = 16;

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

  struct Counter {
    c10::VariableVersion version;
    uint32_t seen;
  };

  // Whether the members of a matrix have counters of their own: they are no aliases that A.t()
  // made.
  static bool has_counters(const Tensor& matrix) {
    const SparseMembers members(matrix);
    return matrix.layout() == at::kSparseCsr && !matrix.is_view() && !members.ptr.is_inference() &&
           !members.index.is_inference();
  }

  struct Entry {
    Identity ptr, index;
    std::vector<Counter> counters;
    uint64_t changes = 1;  // goes up with each write that was seen
    std::optional<TransposedRows> rows;
    c10::Stream stream{c10::Stream::DEFAULT, c10::Device(c10::kCPU)};
    int64_t columns = 0;

    explicit Entry(const SparseMembers& members) : ptr(members.ptr), index(members.index) {}

    bool is_dead() const { return ptr.storage.expired() || index.storage.expired(); }

    // Drops the transpose if a counter went up, and adds the counters of this matrix.
    void watch(const Tensor& matrix, const SparseMembers& members) {
      bool changed = false;
      for (Counter& counter : counters) {
        const uint32_t now = counter.version.current_version();
        changed = changed || now != counter.seen;
        counter.seen = now;
      }
      const bool own_members = has_counters(matrix);
      for (const Tensor* tensor : {&matrix, &members.ptr, &members.index}) {
        if (tensor != &matrix && !own_members) continue;
        const c10::VariableVersion& version = tensor->unsafeGetTensorImpl()->version_counter();
        if (!version.enabled() || is_known(version)) continue;
        const uint32_t now = version.current_version();
        // It is not known whether the transpose was made before the writes that it counts.
        changed = changed || now != 0;
        if (counters.size() == kMostCounters) counters.erase(counters.begin() + kLastKept);
        counters.push_back({version, now});
      }
      if (!changed) return;
      ++changes;
      rows.reset();
    }

   private:
    // The first matrix and its members keep their counters, which may belong to tensors of a user.
    static constexpr size_t kLastKept = 3;

    bool is_known(const c10::VariableVersion& version) const {
      return std::any_of(counters.begin(), counters.end(), [&](const Counter& counter) {
        return identity_of(counter.version) == identity_of(version);
      });
    }
  };

  Entry* find(const SparseMembers& members) {
    for (Entry& entry : entries_) {
      if (entry.ptr.is(members.ptr) && entry.index.is(members.index)) return &entry;
    }
    return nullptr;
  }

  std::atomic<int64_t> made_{0};
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

// Never destroyed: at exit, the allocator may be gone already.
inline Transposes& transposes() {
  static auto& all = *new Transposes();
  return all;
}

}  // namespace gpuopt::overriding
