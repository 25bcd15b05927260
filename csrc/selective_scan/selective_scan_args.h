// The arguments of the kernels, and the plans that hold them. Plain host code, which the kernels
// include: they need not be compiled again if selective_scan_plan.h chooses otherwise.
#pragma once

#include <cstddef>
#include <optional>

#include "common/launch_shape.h"
#include "selective_scan/selective_scan_problem.h"

namespace gpuopt::selective {

constexpr int kThreads = 128;  // of a block
constexpr int kWarps = kThreads / 32;
constexpr int kGroup = 8;         // positions whose sums over the states are added up at once
constexpr int kUpdateStates = 4;  // of a lane at once, in the update of one position

// ---------------------------------------------------------------- Layouts

// Neighbouring values of a tile that a thread moves.
constexpr int run_values(int lanes) { return lanes == 1 ? 16 : lanes < 8 ? 8 : 4; }

// Positions of a tile. Each thread moves at most one run. In backward, the tiles are shorter if
// there are many states: each warp has a tile of the gradients of B and C in shared memory.
constexpr int tile_positions(int per_lane, int lanes, bool backward) {
  const int states = per_lane * lanes, runs = run_values(lanes) * lanes;
  const int most = !backward || states <= 16 ? 32 : states <= 64 ? 16 : 8;
  return runs < most ? runs : most;
}

constexpr int log2_of(int x) { return x <= 1 ? 0 : 1 + log2_of(x / 2); }

// Blocks that an SM holds. The kernels are compiled for it.
constexpr int blocks_per_sm(int per_lane, int lanes, bool backward, bool wide, bool constant) {
  if (wide) return 2;
  if (backward) return per_lane == 8 || constant ? 2 : lanes >= 8 ? 3 : 4;
  return per_lane == 8 || lanes == 1 || lanes == 16 || constant ? 3 : 4;
}

// How the states of a channel lie in a warp: `lanes` neighbouring lanes hold `per_lane` each. And
// how a scan is divided into blocks.
struct Tiling {
  int per_lane = 4;    // 1, 4 or 8
  int lanes = 4;       // 1 to 32, a power of 2
  int tile = 32;       // positions between two barriers, a multiple of kGroup
  int64_t blocks = 0;  // of a segment
  int64_t parts = 0;   // blocks of a group of channels
  int64_t sets = 1;    // sets of channels that a block goes through; more than 1 in backward only
  int64_t segments = 1, segment = 0;  // of the length, and the positions of one

  int channels() const { return kThreads / lanes; }  // of a set
  int states() const { return lanes * per_lane; }    // with padding
};

// The same for kernels, which are compiled for it.
template <int kPerLane, int kLanesPerChannel, bool kBackward>
struct Layout {
  static constexpr int kStates = kPerLane;         // of a lane
  static constexpr int kLanes = kLanesPerChannel;  // of a channel
  static constexpr int kChannels = kThreads / kLanes;
  static constexpr int kPadded = kLanes * kStates;  // states of a channel, with padding
  static constexpr int kTile = tile_positions(kPerLane, kLanes, kBackward);
  static constexpr int kRun = run_values(kLanes);
};

// Calls f with the Layout of a tiling, for kernels that compute in C. There are few layouts for f64
// and for constant B and C, because they are rare. The layouts that are left out would spill
// registers.
template <typename C, bool kConstant, bool kBackward, typename F>
auto with_layout(const Tiling& tiling, F&& f) {
  const auto is = [&](int per_lane, int lanes) {
    return tiling.per_lane == per_lane && tiling.lanes == lanes;
  };
  if constexpr (sizeof(C) < 8 && !kConstant) {
    if (is(1, 1)) return f(Layout<1, 1, kBackward>{});
    if (is(4, 1)) return f(Layout<4, 1, kBackward>{});
    if (is(4, 2)) return f(Layout<4, 2, kBackward>{});
    if (is(4, 8)) return f(Layout<4, 8, kBackward>{});
    if (is(4, 16)) return f(Layout<4, 16, kBackward>{});
  }
  if constexpr (sizeof(C) < 8 || !kConstant) {
    if (is(8, 32)) return f(Layout<8, 32, kBackward>{});
  }
  return is(4, 4) ? f(Layout<4, 4, kBackward>{}) : f(Layout<4, 32, kBackward>{});
}

// Sizes of arrays in shared memory.
template <typename C, typename Layout>
struct ForwardShared {
  static constexpr int kPad = 16 / static_cast<int>(sizeof(C));
  static constexpr int kPitch = Layout::kTile + kPad, kMatrixPitch = Layout::kPadded + kPad;
  static constexpr int kRow = Layout::kChannels * kPitch, kMatrix = Layout::kTile * kMatrixPitch;
  static constexpr size_t kBytes = 2 * sizeof(C) * (kRow + kMatrix + Layout::kChannels);
};

// Positions whose states and factors a thread of the backward kernel keeps in registers. More would
// spill.
template <typename C, typename Layout>
constexpr int kSteps = (Layout::kStates == 1                         ? 32
                        : Layout::kStates == 4 && Layout::kLanes > 2 ? 32
                        : Layout::kStates == 4                       ? 16
                                                                     : 8) /
                       (Layout::kStates == 1 ? 4 : static_cast<int>(sizeof(C)));

// The same of the backward kernel. The results of a group replace rows that it has read.
template <typename C, typename Layout>
struct BackwardShared {
  static constexpr int M = Layout::kStates, kPad = 16 / static_cast<int>(sizeof(C));
  static constexpr int kPitch = Layout::kTile + kPad, kMatrixPitch = Layout::kPadded + kPad;
  static constexpr int kRow = Layout::kChannels * kPitch, kMatrix = Layout::kTile * kMatrixPitch;
  static constexpr int kStarts = Layout::kTile / kSteps<C, Layout> * kThreads * M;
  static constexpr int kPart = Layout::kTile * 2 * Layout::kPadded;
  static constexpr size_t kBytes =
      sizeof(C) * (kStarts + 5 * kRow + 2 * kMatrix + kWarps * kPart + Layout::kChannels);
};

// ---------------------------------------------------------------- Arguments

// What scan_forward() computes. The states of a segment begin at 0, unless they are given.
//   kOutput      out and the last states
//   kStates      the states after each segment, and before each `spacing`-th position
//   kGradients   the gradients of the states before each segment, from the last position to the
//                first: g_t = a_t (g_(t+1) + C_t dy_t)
enum class Pass { kOutput, kStates, kGradients };

struct ForwardArgs {
  Problem problem;  // in kGradients, u is the gradient of out
  Tiling tiling;
  int first_segment = 0;
  void* states = nullptr;   // of segments: [batch, segments, channels, states], or null
  void* seconds = nullptr;  // the sum of dt in each segment: [batch, segments, channels]
  // Before every `spacing`-th position, a power of 2, or null: the states and the sum of dt from
  // the segment's start. [batch, ceil(length / spacing), channels, states], without states for dt
  void *checkpoints = nullptr, *elapsed = nullptr;
  int spacing = 1;
};

// combine_segments() replaces the states of segments, which began at 0, by the states that each
// segment begins with. It goes from the first segment to the last, or back for gradients.
struct CombineArgs {
  Problem problem;
  int64_t segments = 1;
  bool reverse = false;
  const void* initial = nullptr;  // [batch, channels, states], or null: 0
  void* states = nullptr;         // [batch, segments, channels, states]
  const void* seconds = nullptr;  // [batch, segments, channels]
};

struct BackwardArgs {
  Problem problem;
  Gradients gradients;
  Tiling tiling;
  // From the first pass: the states before every tile if the segment's states began at 0, and the
  // sum of dt from there.
  const void *checkpoints = nullptr, *elapsed = nullptr;
  // With several segments: the states before each, and the gradients of those after it, g.
  const void *states = nullptr, *states_gradient = nullptr;
  void* carry = nullptr;  // g, passed from one turn of a set to the next: [rows, channels, states]
};

// ---------------------------------------------------------------- Plans

template <typename Args>
struct Launch {
  Args args;
  LaunchShape shape;
};

// The launches of a plan, in their order, and the sizes of temporary memory, whose addresses are
// null in the arguments. Segments are launched if there are several.
struct ForwardPlan {
  struct Segments {
    Launch<ForwardArgs> states;
    Launch<CombineArgs> combine;
    size_t states_bytes = 0, seconds_bytes = 0;
  };
  std::optional<Segments> segments;
  Launch<ForwardArgs> output;
};

struct BackwardPlan {
  struct Segments {
    Launch<CombineArgs> combine;
    Launch<ForwardArgs> gradients;
    Launch<CombineArgs> combine_gradients;
    size_t elapsed_bytes = 0, states_bytes = 0, seconds_bytes = 0;
  };
  Launch<ForwardArgs> checkpoints;
  std::optional<Segments> segments;
  Launch<BackwardArgs> backward;
  size_t checkpoints_bytes = 0, carry_bytes = 0;

  // How many parts the gradients have, see Gradients.
  int64_t rows() const { return backward.args.problem.batch * backward.args.tiling.segments; }
  int64_t parts() const { return backward.args.tiling.parts; }
};

struct UpdatePlan {
  Update args;
  int lanes = 1;  // of a channel
  LaunchShape shape;
};

}  // namespace gpuopt::selective
