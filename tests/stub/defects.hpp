// What a defect of the broken backend is, and the lists of them.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "device/device.hpp"

namespace winnow {

// What a defect does to the arguments before the reference sees them, or to the results after.
struct Defect {
    std::function<void(Sdpa&)> before_sdpa = {};
    std::function<void(const Sdpa&)> after_sdpa = {};
    std::function<void(KvAppend&)> before_append = {};
    std::function<void(const KvAppend&)> after_append = {};
    std::function<void(KvRequantize&)> before_requantize = {};
    std::function<void(const KvRequantize&)> after_requantize = {};
    std::function<void(const KvDequantize&)> after_dequantize = {};
    std::function<void(Hadamard&)> before_hadamard = {};
    std::function<void(const Hadamard&)> after_hadamard = {};
};

// Those of packed formats and of the operations on rows.
std::map<std::string, Defect> format_defects();

} // namespace winnow
