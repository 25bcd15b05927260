// Structures: what is computed from index tensors, such as the transpose of a sparse matrix, and
// kept from call to call. TRANSPOSES.md says when one is computed again.
#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spmm/binding/spmm_transpose.h"

namespace gpuopt::spmm {

using Results = c10::List<TensorOption>;

struct Structure {
  std::string name;
  // Weak pointers keep addresses from being given to other storages.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages;
  Results results;
  Tensor fingerprint;                  // of the sources, zero at first
  std::vector<int64_t> versions = {};  // of sources and results, where the host makes results again
  Tensor changes = {};                 // how often the device did, where it makes them again

  bool is_dead() const {
    return std::any_of(storages.begin(), storages.end(),
                       [](const auto& one) { return one.expired(); });
  }
};

// All structures. Whoever has an object of this class has the lock. A key begins with its owner.
class Structures {
 public:
  Structures() {
    drop_if([](const Structure& one) { return one.is_dead(); });
  }

  // The structure of these tensors on the current stream, or null.
  Structure* find(at::TensorList sources, std::string_view key) {
    return find(name_of(sources, key));
  }

  // A new structure, in place of the one that `find` returns.
  Structure& add(at::TensorList sources, std::string_view key, Results results) {
    Structure made{name_of(sources, key),
                   {},
                   std::move(results),
                   at::zeros({4}, sources.front().options().dtype(at::kLong))};
    for (const Tensor& source : sources) {
      made.storages.push_back(source.storage().getWeakStorageImpl());
    }
    drop(find(made.name));
    if (all_.kept.size() == kMost) drop(&all_.kept.front());
    return all_.kept.emplace_back(std::move(made));
  }

  // A zero in memory of the host that kernels can write to. A kernel in flight may write to it when
  // its structure is gone. So the memory is never freed, and a later structure takes it over.
  Tensor counter(bool is_cuda) {
    auto& unused = all_.counters[is_cuda];
    if (unused.empty()) return at::zeros({1}, at::dtype(at::kLong).pinned_memory(is_cuda));
    const Tensor counter = std::move(unused.back());
    unused.pop_back();
    *static_cast<int64_t*>(counter.mutable_data_ptr()) = 0;  // zero_() minds inference mode
    return counter;
  }

  void drop_of(std::string_view owner) {
    drop_if([&](const Structure& one) { return one.name.starts_with(owner); });
  }
  int64_t count_of(std::string_view owner) const {
    return std::count_if(all_.kept.begin(), all_.kept.end(),
                         [&](const Structure& one) { return one.name.starts_with(owner); });
  }

  bool has_result(const Tensor& tensor) const {
    const auto is = [&](const TensorOption& one) { return one && one->is_alias_of(tensor); };
    return std::any_of(all_.kept.begin(), all_.kept.end(), [&](const Structure& one) {
      return std::any_of(one.results.begin(), one.results.end(), is);
    });
  }

 private:
  static constexpr size_t kMost = 128;
  struct All {
    std::mutex mutex;
    std::list<Structure> kept;                    // the least recently used one first
    std::array<std::vector<Tensor>, 2> counters;  // unused ones of the CPU and of CUDA
  };

  // Never destroyed: at exit, the allocator may be gone already.
  static All& all() {
    static auto& all = *new All();
    return all;
  }

  // The key, the current stream, and the numbers that the tensors read.
  static std::string name_of(at::TensorList sources, std::string_view key) {
    std::string name(key);
    const auto add = [&](auto number) {
      name.append(reinterpret_cast<const char*>(&number), sizeof(number));
    };
    const c10::Device device = sources.front().device();
    add(c10::impl::VirtualGuardImpl(device.type()).getStream(device).id());
    for (const Tensor& source : sources) {
      add(source.storage().unsafeGetStorageImpl());
      add(source.const_data_ptr());
      add(source.scalar_type());
      add(source.dim());
      for (const int64_t size : source.sizes()) add(size);
      for (const int64_t stride : source.strides()) add(stride);
    }
    return name;
  }

  Structure* find(const std::string& name) {
    auto& kept = all_.kept;
    const auto found = std::find_if(kept.begin(), kept.end(),
                                    [&](const Structure& one) { return one.name == name; });
    if (found == kept.end()) return nullptr;
    kept.splice(kept.end(), kept, found);  // as the most recently used one
    return &*found;
  }

  void drop(const Structure* dropped) {
    drop_if([&](const Structure& one) { return &one == dropped; });
  }

  template <typename F>
  void drop_if(const F& is_dropped) {
    for (auto next = all_.kept.begin(); next != all_.kept.end();) {
      const auto one = next++;
      if (!is_dropped(*one)) continue;
      if (one->changes.defined()) {
        all_.counters[one->results.get(0)->is_cuda()].push_back(one->changes);
      }
      dropped_.splice(dropped_.end(), all_.kept, one);
    }
  }

  All& all_ = all();
  std::list<Structure> dropped_;  // freed without the lock: a tensor's end may wait for Python
  std::lock_guard<std::mutex> lock_{all_.mutex};
};

}  // namespace gpuopt::spmm
