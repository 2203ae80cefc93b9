// The device that llama.cpp sees: what it can, and the memory it uses.
#pragma once

#include "ggml-backend-impl.h"
#include "plugin.hpp"
#include "report.hpp"

namespace winnow::ggml {

// What hangs on the device, for the life of the process.
struct Registration {
    Plugin plugin;
    Report report{plugin.api(), plugin.device()};
    ggml_backend_device device{};
    std::string description;
};

// The registration, once ggml_backend_init has succeeded.
Registration* registration();
void set_registration(Registration* registration);

// Fills registration.device.
void make_device(Registration& registration, ggml_backend_reg_t reg);

} // namespace winnow::ggml
