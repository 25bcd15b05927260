// The operators with which torch_ops.override replaces ATen's kernels, and counts their calls.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "override/conv1d.h"
#include "override/copy.h"
#include "override/cumsum.h"
#include "override/deterministic/counts.h"
#include "override/deterministic/grid_sampler.h"
#include "override/deterministic/linear_maps.h"
#include "override/deterministic/windows.h"
#include "override/dot.h"
#include "override/embedding_bag.h"
#include "override/index_add.h"
#include "override/index_select.h"
#include "override/matmul.h"
#include "override/mul.h"
#include "override/norm.h"
#include "override/norm_channels.h"
#include "override/pad.h"
#include "override/reduce.h"
#include "override/replacement.h"
#include "override/scatter_reduce.h"
#include "override/segment.h"
#include "override/sparse.h"
#include "override/upsample.h"

namespace gpuopt::overriding {
namespace {

struct Entry {
  std::unique_ptr<AnyReplacement> replacement;
  int64_t users = 0;
  std::unique_ptr<torch::Library> library = nullptr;  // while there are users
};

template <typename... Ops>
std::vector<Entry> entries_of() {
  std::vector<Entry> entries;
  (entries.push_back({std::make_unique<Replacement<Ops>>()}), ...);
  return entries;
}

// Never destroyed: at exit, the dispatcher may be gone already.
std::vector<Entry>& entries() {
  static auto& all = *new std::vector<Entry>(
      entries_of<
          Sum, Mean, Amax, Amin, Mul, Nearest, NearestBackward, NearestExact, NearestExactBackward,
          IndexAdd, IndexAddInplace, ScatterAdd, ScatterAddInplace, ScatterReduce,
          ScatterReduceInplace, ScatterReduceOut, IndexPut, EmbeddingDenseBackward, EmbeddingBag,
          EmbeddingBagOnly, EmbeddingBagBackward, EmbeddingBagWeightsBackward, IndexSelect, Cumsum,
          CumsumInplace, Convolution, ConvolutionBackward, Dot, Vdot, Copy, ConstantPad,
          Reflection1d, Reflection2d, Reflection3d, Replication1d, Replication2d, Replication3d,
          Reflection1dBackward, Reflection2dBackward, Reflection3dBackward, Replication1dBackward,
          Replication2dBackward, Replication3dBackward, Roll, Cat, Gather, SegmentReduce,
          SegmentReduceBackward, SparseMm, SparseAddmm, SparseAddmmOut, SparseSampledAddmm,
          SparseMmReduce, SparseMmReduceBackward, NativeLayerNorm, NativeLayerNormBackward,
          FusedRmsNorm, FusedRmsNormBackward, NativeGroupNorm, NativeGroupNormBackward,
          NativeBatchNorm, LegitBatchNorm, LegitBatchNormWithoutStatistics, NativeBatchNormBackward,
          CudnnBatchNorm, CudnnBatchNormBackward, DenseMm, DenseMmOut, DenseBmm, DenseBmmOut,
          DenseAddmm, DenseAddmmOut, MaxPool3d, AdaptiveMax2d, AdaptiveMax3d, FractionalMax2d,
          FractionalMax3d, MaxUnpool2d, MaxUnpool3d, LinearBackward, BilinearBackward,
          TrilinearBackward, BicubicBackward, SmoothBilinearBackward, SmoothBicubicBackward,
          AdaptiveAverage2dBackward, AdaptiveAverage3dBackward, AveragePool3dBackward,
          GridSampler2dBackward, GridSampler3dBackward, CudnnGridSamplerBackward, Put, Bincount,
          Histc, IndexReduce, IndexReduceInplace, MedianDim, NanmedianDim, NllLoss2d>());
  return all;
}

std::mutex& entries_lock() {
  static auto& lock = *new std::mutex();
  return lock;
}

using Names = c10::List<std::string>;

std::vector<Entry*> named(const Names& names) {
  std::vector<Entry*> found;
  for (Entry& entry : entries()) {
    const std::string name_of_operator =
        kOperatorNames[static_cast<size_t>(entry.replacement->op())];
    for (const std::string& name : names) {
      if (name == name_of_operator) found.push_back(&entry);
    }
  }
  return found;
}

// The dispatcher warns where a kernel is replaced.
class Silence final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

void release(Entry& entry) {
  if (--entry.users == 0) entry.library.reset();
}

void enable(const Names& names, std::string_view key_name, bool always) {
  const c10::DispatchKey key = c10::parseDispatchKey(std::string(key_name));
  TORCH_CHECK(
      handle<ReduceSum>().hasKernelForDispatchKey(key),
      "torch_ops.override: this build of gpuopt has no kernels for ", key_name,
      "; install a torch with CUDA and nvcc, and build gpuopt again without GPUOPT_CPU_ONLY");
  const std::lock_guard<std::mutex> lock(entries_lock());
  const bool used = std::any_of(entries().begin(), entries().end(),
                                [](const Entry& entry) { return entry.users > 0; });
  TORCH_CHECK(!used || (key == settings.key && always == settings.always),
              "torch_ops.override: operators are replaced already, with other settings");
  settings.key = key;
  settings.always = always;
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  std::vector<Entry*> done;
  try {
    for (Entry* entry : named(names)) {
      if (entry->users == 0) entry->library = entry->replacement->replace(key);
      ++entry->users;
      done.push_back(entry);
    }
  } catch (...) {
    for (Entry* entry : done) release(*entry);
    throw;
  }
}

void disable(const Names& names) {
  const std::lock_guard<std::mutex> lock(entries_lock());
  for (Entry* entry : named(names)) {
    if (entry->users > 0) release(*entry);
  }
  const bool used = std::any_of(entries().begin(), entries().end(),
                                [](const Entry& entry) { return entry.users > 0; });
  if (!used) spmm::Structures().drop_of(kOwner);
}

template <const auto& of>
Names names() {
  Names all;
  for (const char* name : of) all.push_back(name);
  return all;
}

// The calls of each operator by reason, one operator after another.
c10::List<int64_t> count_calls() {
  c10::List<int64_t> counts;
  for (const Calls& of_operator : calls) {
    for (size_t reason = 0; reason < kReasons; ++reason) counts.push_back(of_operator.of(reason));
  }
  return counts;
}

void reset_calls() {
  for (Calls& of_operator : calls) of_operator.reset();
}

// Transposes of sparse matrices: how many are kept, and how many were made.
c10::List<int64_t> count_transposes() {
  return {spmm::Structures().count_of(kOwner), transposes_made.load()};
}

// What torch_ops._graph has to know of an addition: whether its rows are counts, whether it is
// computed in mode `accurate`, and whether it is faster than Inductor's kernel, with sums of dtype
// `sum`.
std::tuple<bool, bool, bool> decide_in_graph(int64_t result, int64_t source, int64_t item,
                                             int64_t entries, int64_t rows, at::ScalarType sum,
                                             bool deterministic) {
  const policy::Addition add{result, source, item, entries, rows};
  return {add.is_count(), policy::sums_in_float32(add),
          policy::index_add_in_graph(add, c10::elementSize(sum) == 2, sum == at::kBFloat16,
                                     deterministic)};
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  m.def(
      "_override_in_graph(int result, int source, int item, int entries, int rows, ScalarType sum, "
      "bool deterministic) -> (bool, bool, bool)",
      decide_in_graph);
  m.def("_override_enable(str[] names, str key, bool always) -> ()", enable);
  m.def("_override_disable(str[] names) -> ()", disable);
  m.def("_override_operators() -> str[]", names<kOperatorNames>);
  m.def("_override_reasons() -> str[]", names<kReasonNames>);
  m.def("_override_calls() -> int[]", count_calls);
  m.def("_override_reset() -> ()", reset_calls);
  m.def("_override_transposes() -> int[]", count_transposes);
}

}  // namespace
}  // namespace gpuopt::overriding
