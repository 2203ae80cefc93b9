// Lending ggml's threads to Winnow.
//
// ggml's CPU backend computes on a team of OpenMP threads, which spin for a while after each part of a graph. A driver
// that wakes threads of its own for the attention in between competes with them for the cores. So Winnow computes on
// the team that is awake already: on OpenCL devices that work in the thread that calls them, one for each thread of the
// team.
#pragma once

#include <atomic>
#include <cstdint>

#include "winnow.h"

namespace winnow::ggml {

// Finds the OpenMP runtime that is loaded in this process. If there is one, and POCL_DEVICES is not set, sets it so
// that PoCL offers a device per processor that computes in the calling thread. Has to come before OpenCL is first used.
void prepare_threads();

// Whether prepare_threads found a team to compute on.
bool have_team();

// A winnow_parallel_for; user_data is a const std::atomic<int>*, the number of threads of the team.
void WINNOW_CALL run_on_team(void* user_data, uint32_t count, winnow_task task, void* task_data);

} // namespace winnow::ggml
