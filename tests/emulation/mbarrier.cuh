// Replaces csrc/common/mbarrier.cuh: barriers of emulated threads. A thread that waits lets the
// others run.
#pragma once

#include <cstdint>

namespace gpuopt {

using Barrier = uint64_t;

struct BarrierState {
  uint8_t phase, arrivals, missing;
  int32_t bytes;  // that the phase still expects

  static BarrierState& of(Barrier* barrier) { return *reinterpret_cast<BarrierState*>(barrier); }
  void end_phase_if_complete() {
    if (missing > 0 || bytes != 0) return;
    ++phase;
    missing = arrivals;
  }
};
static_assert(sizeof(BarrierState) <= sizeof(Barrier));

inline void init_barrier(Barrier* barrier, uint32_t arrivals) {
  const auto count = static_cast<uint8_t>(arrivals);
  BarrierState::of(barrier) = {0, count, count, 0};
}
inline void fence_barriers() {}

inline void arrive_expecting(Barrier* barrier, uint32_t bytes) {
  auto& state = BarrierState::of(barrier);
  if (state.missing == 0) abort();
  --state.missing;
  state.bytes += static_cast<int32_t>(bytes);
  state.end_phase_if_complete();
}
inline void arrive(Barrier* barrier) { arrive_expecting(barrier, 0); }
// A cluster has one block: the emulator runs one block after another.
inline void arrive_in_block(Barrier* barrier, uint32_t block) {
  if (block != 0) abort();
  arrive(barrier);
}

inline void count_bytes(Barrier* barrier, uint32_t bytes) {
  auto& state = BarrierState::of(barrier);
  state.bytes -= static_cast<int32_t>(bytes);
  state.end_phase_if_complete();
}

inline void wait_barrier(Barrier* barrier, uint32_t parity) {
  while ((BarrierState::of(barrier).phase & 1) == parity) emulator::wait(emulator::Wait::kSpin);
}

inline void sync_warps(int number, int threads) {
  static BarrierState states[16];
  auto& state = states[number];
  if (state.missing == 0) state = {state.phase, 0, static_cast<uint8_t>(threads), 0};
  const uint8_t phase = state.phase;
  --state.missing;
  state.end_phase_if_complete();
  while (state.phase == phase) emulator::wait(emulator::Wait::kSpin);
}

template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;

  void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace gpuopt
