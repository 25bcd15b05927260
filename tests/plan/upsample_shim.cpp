// C entry points to the index functions and planners of upsampling, for test_upsample_index.py and
// test_upsample_plan.py.
#include "upsample/upsample_backward_plan.h"
#include "upsample/upsample_forward_plan.h"
#include "upsample_problem.h"

using namespace gpuopt;
using namespace gpuopt::upsample;

struct LayoutView {
  int64_t unit_bytes, images, channels, pixel_units, batch_stride, channel_stride, row_stride,
      pixel_stride, unit_stride;
};

struct ForwardView {
  LayoutView layout;
  int64_t path, repeat, long_rows, rows, row_units, vecs_per_row, vecs, vecs_at_once, group_images,
      groups, group_step;
};

struct BackwardView {
  LayoutView layout;
  int64_t path, rows, row_units, aligned, factor, rows_per_thread, most, lanes, splits, vecs, tiles,
      tile_columns, block_row_pairs, images_per_thread, read_once;
};

namespace {

LayoutView view_of(const Layout& layout) {
  return {layout.unit_bytes,  layout.images,       layout.channels,
          layout.pixel_units, layout.batch_stride, layout.channel_stride,
          layout.row_stride,  layout.pixel_stride, layout.unit_stride};
}

}  // namespace

extern "C" {

int factor_of(int64_t in, int64_t out, float step, int exact) {
  return make_axis(in, out, step, exact != 0).factor;
}

int64_t widest_window(int64_t in, int64_t out, float step, int exact) {
  return detail::widest_window(make_axis(in, out, step, exact != 0));
}

// Computes the sources of `count` output pixels.
void sources(int64_t in, int64_t out, float step, int exact, int count, const int32_t* outs,
             int32_t* found) {
  const Axis axis = make_axis(in, out, step, exact != 0);
  for (int i = 0; i < count; ++i) found[i] = source_of(axis, outs[i]);
}

void short_sources(int64_t in, int64_t out, float step, int exact, int count, const int32_t* outs,
                   int32_t* found) {
  const Axis axis = make_axis(in, out, step, exact != 0);
  for (int i = 0; i < count; ++i) {
    found[i] = source_at(axis, static_cast<float>(outs[i]) + axis.center);
  }
}

void first_copies(int64_t in, int64_t out, float step, int exact, int count, const int32_t* ins,
                  int32_t* found) {
  const Axis axis = make_axis(in, out, step, exact != 0);
  for (int i = 0; i < count; ++i) found[i] = first_copy_of(axis, ins[i]);
}

void forward_plan(const int64_t* sizes, const float* steps, int exact, const int64_t* strides,
                  int channels_last, uint64_t from, int dtype, int sms, ForwardView* view) {
  const Problem problem = make_problem(sizes, steps, exact, strides, channels_last, from, 0, dtype);
  const ForwardPlan plan = plan_forward(problem, Device{sms});
  *view = {view_of(plan.layout),
           static_cast<int64_t>(plan.path),
           plan.repeat,
           plan.long_rows,
           plan.rows,
           plan.row_units,
           plan.vecs_per_row,
           plan.vecs,
           plan.vecs_at_once,
           plan.group_images,
           plan.groups,
           plan.group_step};
}

void backward_plan(const int64_t* sizes, const float* steps, int exact, const int64_t* strides,
                   int channels_last, uint64_t from, int dtype, int sms, BackwardView* view) {
  const Problem problem = make_problem(sizes, steps, exact, strides, channels_last, from, 0, dtype);
  const BackwardPlan plan = plan_backward(problem, Device{sms});
  *view = {view_of(plan.layout),
           static_cast<int64_t>(plan.path),
           plan.rows,
           plan.row_units,
           plan.aligned,
           plan.factor,
           plan.rows_per_thread,
           plan.most,
           plan.lanes,
           plan.splits,
           plan.vecs,
           plan.tiles,
           plan.tile_columns,
           plan.block_row_pairs,
           plan.images_per_thread,
           plan.read_once};
}
}
