// What winnow_opencl.h has: records by which a host brings its own OpenCL objects, and a table.
#pragma once

#include "api/handles.hpp"
#include "winnow_opencl.h"

namespace winnow::api {

extern const winnow_opencl_api opencl_table; // of a backend that is_opencl

// Takes the host's objects out of a context's chain of records, if they are there.
void read_objects(const winnow_context_desc& desc, DeviceRequest& request);
// The buffer over the memory that a record names.
void import_memory(winnow_context& context, const winnow_buffer_desc& desc, const winnow_opencl_memory& memory,
                   winnow_buffer& handle);
// Such a record; all zero where there is none.
winnow_opencl_memory read_memory(const winnow_extension* next);

} // namespace winnow::api
