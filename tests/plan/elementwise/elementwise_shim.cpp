// C entry points to the element-wise launch planner, for test_elementwise_plan.py.
#include "common/describe.h"
#include "elementwise_problem.h"

using namespace gpuopt;
using namespace gpuopt::elementwise;

namespace {

template <Types kTypes, int kInputs>
std::string launches(const Given& given, const Tuning& tuning) {
  const Device device{132, 227 << 10};
  return to_json(make_plan<kTypes>(make_problem<kInputs>(given), device, tuning).launches);
}

template <Types kTypes>
std::string launches(const Given& given, const Tuning& tuning) {
  switch (given.num_inputs) {
    case 1:
      return launches<kTypes, 1>(given, tuning);
    case 2:
      return launches<kTypes, 2>(given, tuning);
    default:
      return launches<kTypes, 3>(given, tuning);
  }
}

}  // namespace

extern "C" {

// Returns the launches as JSON, which the next call overwrites. They are planned with the limits of
// tests or with the real ones, for an operation with every path for every type or only for
// floating-point types.
const char* plan(const Given* given, bool real_limits, bool every_type) {
  static std::string json;
  const Tuning tuning = real_limits ? Tuning() : kTestTuning;
  json =
      every_type ? launches<Types::kAll>(*given, tuning) : launches<Types::kFloats>(*given, tuning);
  return json.c_str();
}

uint32_t fast_div(uint32_t n, uint32_t divisor) { return FastDiv(divisor).div(n); }

void span(uint32_t vec, uint32_t shift, uint32_t values, uint32_t row_size, uint32_t* begin_end) {
  const RowSpan made = row_span(vec, shift, values, row_size);
  begin_end[0] = made.begin;
  begin_end[1] = made.end;
}

// The offsets of `count` values from `index` on, in planes of sizes[0] * sizes[1] values.
void walk(const uint32_t* sizes, const uint32_t* strides, uint32_t index, int count,
          uint32_t* offsets) {
  const uint32_t column = index % sizes[0], row = index / sizes[0];
  const uint32_t row_in_plane = row % sizes[1], plane = row / sizes[1];
  const uint32_t start = plane * strides[2] + row_in_plane * strides[1];
  RowWalk walk{strides[0],
               strides[1],
               sizes[0],
               sizes[0] - column,
               sizes[1] - row_in_plane,
               start,
               start + column * strides[0],
               (plane + 1) * strides[2]};
  for (int i = 0; i < count; ++i) {
    offsets[i] = walk.offset;
    walk.step();
  }
}
}
