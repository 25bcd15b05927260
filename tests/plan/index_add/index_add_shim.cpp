// C entry points to the planner of index_add, for test_index_add_plan.py.
#include "common/describe.h"
#include "index_add/index_add_plan.h"
#include "index_add_problem.h"

using namespace gpuopt;
using namespace gpuopt::index_add;

namespace {

struct Launch {
  const Problem& whole;
  const Problem& part;
  const Layout& layout;
  const Plan& plan;
};

int64_t distance(const void* from, const void* to) {
  return static_cast<const char*>(to) - static_cast<const char*>(from);
}

template <typename F>
void describe(const Launch& launch, F&& f) {
  const auto& [whole, part, layout, plan] = launch;
  f("entries", part.entries);
  f("first", distance(whole.index, part.index) / 8);
  f("self_offset", distance(whole.self, part.self));
  f("source_offset", distance(whole.source, part.source));
  f("inner", layout.inner.size);
  f("inner_self_stride", layout.inner.self_stride);
  f("inner_source_stride", layout.inner.source_stride);
  f("num_outer", layout.num_outer);
  f("outer_size", layout.outer_size);
  describe(plan, f);
}

}  // namespace

extern "C" {

int64_t max_outer_dims() { return kMaxOuterDims; }
int64_t max_sort_blocks() { return kMaxSortBlocks; }
int64_t max_digit_bits() { return kMaxDigitBits; }
int64_t line_threads() { return kLineThreads; }
int64_t max_line_entries() { return int64_t{kOrderThreads} * kOrderItems; }

// The launches of a problem: a JSON array. Addresses are only numbers and are not dereferenced.
const char* plans(int num_dims, int dim, const int64_t* sizes, int64_t entries,
                  const int64_t* self_strides, const int64_t* source_strides, uint64_t self,
                  uint64_t source, uint64_t index, int dtype, int mode, int sms, int shared_bytes) {
  static std::string json;
  json.clear();
  const Problem problem = make_problem(num_dims, dim, sizes, entries, self_strides, source_strides,
                                       self, source, index, 1, 1, dtype, mode, 1);
  const Device device{sms, shared_bytes};
  const Tuning tuning;
  const Layout layout = make_layout(problem);
  const Path path = choose_path(problem, layout, device, tuning);
  for_each_part(problem, layout, tuning, [&](const Problem& part, const Layout& part_layout) {
    const Plan plan = plan_part(path, part, part_layout, device, tuning);
    json += (json.empty() ? "[" : ", ") + to_json(Launch{problem, part, part_layout, plan});
    return 0;
  });
  json += "]";
  return json.c_str();
}
}
