// The operators with which Python keeps structures. Their results are made again by Python.
#include "spmm/binding/spmm_structures.h"

namespace gpuopt::spmm {
namespace {

std::vector<int64_t> versions_of(at::TensorList sources, const Results& results) {
  std::vector<int64_t> versions;
  for (const Tensor& source : sources) versions.push_back(source._version());
  for (const std::optional<Tensor>& result : results) {
    versions.push_back(result.has_value() ? result->_version() : 0);
  }
  return versions;
}

// What was kept for these tensors and this key. Nothing if there is nothing, or if one of the
// tensors or of the results has been written to.
Results find(at::TensorList sources, std::string_view key) {
  Structures structures;
  const Structure* const found = structures.find(sources, key);
  if (found == nullptr || found->versions != versions_of(sources, found->results)) return Results();
  if (found->fingerprint.defined()) {
    kernels_for(sources.front()).refuse_writes(found->fingerprint, sources);
  }
  return found->results;
}

// No result may share memory with a source. A source that is a result itself, such as an edge_index
// with self-loops, is not reached by writes that are not counted. So it needs no fingerprint.
void keep(at::TensorList sources, std::string_view key, const Results& results) {
  Structures structures;
  const bool reads_result = std::any_of(sources.begin(), sources.end(), [&](const Tensor& source) {
    return structures.has_result(source);
  });
  Structure& made = structures.add(sources, key, results);
  made.versions = versions_of(sources, results);
  if (reads_result) {
    made.fingerprint.reset();
  } else {
    kernels_for(sources.front()).refuse_writes(made.fingerprint, sources);
  }
}

int64_t count(std::string_view owner) { return Structures().count_of(owner); }

void forget(std::string_view owner) { Structures().drop_of(owner); }

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  m.def("_structure_find(Tensor[] sources, str key) -> Tensor?[]", find);
  m.def("_structure_keep(Tensor[] sources, str key, Tensor?[] results) -> ()", keep);
  m.def("_structure_count(str owner) -> int", count);
  m.def("_structure_forget(str owner) -> ()", forget);
}

}  // namespace
}  // namespace gpuopt::spmm
