// C entry points to the planner of sparse products, for test_spmm_plan.py.
#include "common/describe.h"
#include "common/parts.h"
#include "graph_attention/graph_attention_plan.h"
#include "spmm/spmm_plan.h"

using namespace gpuopt;
using namespace gpuopt::spmm;
using namespace gpuopt::graph_attention;

namespace {

// In the order of test_spmm_plan.py. Addresses are only numbers and are not dereferenced.
struct Given {
  int64_t ptr, index, entry, is_long, rows, columns, entries;
  int64_t reduce, dtype, batches, features, heads, value, dense, dense_row, dense_batch;
  int64_t out, out_row, out_batch, arg, selected, wide_out, few;

  static void* address(int64_t number) { return reinterpret_cast<void*>(number); }
  Matrix matrix() const {
    return {address(ptr), address(index), address(entry), is_long != 0, rows, columns, entries};
  }
};

std::string json;

// Whether one launch may reduce few entries.
Tuning tuning_of(const Given& given) {
  Tuning tuning;
  if (given.few == 0) tuning.few_units = 0;
  return tuning;
}

}  // namespace

extern "C" {

// Why the problem is refused, or an empty string.
const char* refused(const Given* given) {
  const char* const why = refusal(given->matrix(), given->features);
  return why == nullptr ? "" : why;
}

// The launches of a reduction: a JSON array.
const char* reduce(const Given* given) {
  ReduceProblem problem;
  problem.matrix = given->matrix();
  problem.reduce = static_cast<Reduce>(given->reduce);
  problem.dtype = static_cast<DType>(given->dtype);
  problem.batches = given->batches;
  problem.features = given->features;
  problem.heads = given->heads;
  problem.value = Given::address(given->value);
  problem.dense = {Given::address(given->dense), given->dense_row, given->dense_batch};
  problem.out = {Given::address(given->out), given->out_row, given->out_batch};
  problem.arg = Given::address(given->arg);
  problem.selected = Given::address(given->selected);
  problem.wide_out = given->wide_out != 0;
  json.clear();
  for_each_part(
      problem,
      [&](const ReduceProblem& part) {
        return fits(part) ? std::optional(plan(part, tuning_of(*given))) : std::nullopt;
      },
      [](const ReducePlan& plan) { json += (json.empty() ? "[" : ", ") + to_json(plan); });
  json += "]";
  return json.c_str();
}

// A product of rows: `dense` and `out` are the operands.
const char* product(const Given* given) {
  ProductProblem problem;
  problem.matrix = given->matrix();
  problem.dtype = static_cast<DType>(given->dtype);
  problem.features = given->features;
  problem.heads = given->heads;
  problem.a = {Given::address(given->dense), given->dense_row, 0};
  problem.b = {Given::address(given->out), given->out_row, 0};
  json = to_json(plan(problem));
  return json.c_str();
}

// A map of the kind `reduce`, from the rows `dense` to `out`.
const char* map(const Given* given) {
  MapProblem problem;
  problem.matrix = given->matrix();
  problem.map = static_cast<Map>(given->reduce);
  problem.dtype = static_cast<DType>(given->dtype);
  problem.features = given->features;
  problem.row = {Given::address(given->dense), given->dense_row, 0};
  problem.out = Given::address(given->out);
  json = to_json(plan(problem, tuning_of(*given)));
  return json.c_str();
}

bool vectors(int64_t key_features, int64_t features, int64_t dtype) {
  return heads_are_vectors(key_features, features, static_cast<DType>(dtype));
}

// Attention of `features` features and `key_features` of left and right, all heads together.
const char* attention(const Given* given, int64_t key_features, bool is_gradient) {
  AttentionProblem problem;
  problem.matrix = given->matrix();
  problem.dtype = static_cast<DType>(given->dtype);
  problem.heads = given->heads;
  problem.features = given->features;
  problem.key_features = key_features;
  json = is_gradient ? to_json(plan_gradient(problem)) : to_json(plan(problem));
  return json.c_str();
}
}
