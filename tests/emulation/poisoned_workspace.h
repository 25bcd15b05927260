// Workspaces for emulated launchers. They are filled with a byte that would be visible in every
// result, and followed by bytes that must not change.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/workspace.h"

namespace gpuopt {

constexpr size_t kGuard = 1024;

using emulator::is_filled;

struct PoisonedWorkspace final : Workspace {
  explicit PoisonedWorkspace(char poison) : poison(poison) {}

  void* allocate(size_t bytes) override {
    for (; released > 0; --released) {
      std::fill_n(begin(released - 1), sizes[released - 1], poison);
    }
    sizes.push_back(bytes);
    in_use += bytes;
    most_in_use = std::max(most_in_use, in_use);
    blocks.emplace_back(bytes + kGuard + 16, poison);
    return begin(blocks.size() - 1);
  }
  void release() override {
    in_use = 0;
    released = blocks.size();
  }
  char* begin(size_t i) {
    return blocks[i].data() + (-reinterpret_cast<uintptr_t>(blocks[i].data()) & 15);
  }
  bool intact() {
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (!is_filled(begin(i) + sizes[i], kGuard, poison)) return false;
    }
    return true;
  }

  const char poison;
  size_t in_use = 0, most_in_use = 0;
  size_t released = 0;  // blocks that the next allocation overwrites
  std::vector<size_t> sizes;
  std::vector<std::vector<char>> blocks;
};

}  // namespace gpuopt
