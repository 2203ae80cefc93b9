// Gathers everything into one JSON value, and prints that or a page of text made from it.
#include "info.hpp"

#include <array>
#include <cstdio>
#include <ostream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "probe_shapes.hpp"

namespace winnow::tools {
namespace {

using nlohmann::ordered_json;

const char* type_name(uint32_t type) {
    switch (type) {
    case WINNOW_DEVICE_CPU: return "cpu";
    case WINNOW_DEVICE_GPU: return "gpu";
    case WINNOW_DEVICE_ACCELERATOR: return "accelerator";
    default: return "unknown";
    }
}

ordered_json capability_names(uint32_t capabilities) {
    ordered_json names = ordered_json::array();
    const auto add = [&](uint32_t bit, const char* name) {
        if (capabilities & bit) names.push_back(name);
    };
    add(WINNOW_CAPABILITY_UNIFIED_MEMORY, "unified_memory");
    add(WINNOW_CAPABILITY_SINGLE_LAUNCH, "single_launch");
    add(WINNOW_CAPABILITY_SUBGROUPS, "subgroups");
    add(WINNOW_CAPABILITY_FP16, "fp16");
    add(WINNOW_CAPABILITY_FP64, "fp64");
    return names;
}

ordered_json describe(const winnow_device_info& info) {
    return {
        {"name", info.name},
        {"type", type_name(info.type)},
        {"vendor", info.vendor},
        {"platform", info.platform},
        {"driver_version", info.driver_version},
        {"kernel_shape", info.kernel_shape},
        {"compute_units", info.compute_units},
        {"memory_size", info.memory_size},
        {"max_allocation_size", info.max_allocation_size},
        {"capabilities", capability_names(info.capabilities)},
    };
}

// As other programs spell it: 8-4-4-4-12 digits.
std::string hex(const std::array<uint8_t, 16>& uuid) {
    std::string text;
    for (size_t i = 0; i < uuid.size(); ++i) {
        char digits[4];
        std::snprintf(digits, sizeof digits, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
        text += digits;
    }
    return text;
}

// What a context tells its log while it is made: how it reaches memory, quirks of its driver, what it was tested for.
void WINNOW_CALL note(void* notes, int32_t, const char* text) { static_cast<ordered_json*>(notes)->push_back(text); }

// Opens the device and adds what only a context can tell.
bool add_context(const OpenBackend& backend, const std::string& device, const InfoOptions& options,
                 ordered_json& entry) {
    winnow_context_desc desc{};
    desc.struct_size = sizeof desc;
    desc.device = device.c_str();
    desc.variants = options.variants.empty() ? nullptr : options.variants.c_str();
    ordered_json notes = ordered_json::array();
    desc.log = note;
    desc.log_user_data = &notes;
    desc.log_level = WINNOW_LOG_INFO;
    OwnedContext context;
    try {
        context = backend.make_context(desc);
    } catch (const std::runtime_error& error) {
        entry["error"] = error.what();
        return false;
    }
    winnow_device_info info{};
    info.struct_size = sizeof info;
    if (backend.api().context_info(context.get(), &info) == WINNOW_OK) entry.update(describe(info));
    std::array<uint8_t, 16> uuid{};
    const winnow_opencl_api* const opencl = backend.opencl();
    if (opencl != nullptr && opencl->device_uuid(context.get(), uuid.data()) == WINNOW_OK) entry["uuid"] = hex(uuid);
    entry["notes"] = notes;
    entry["variants"] = ordered_json::array();
    for (const VariantAnswer& answer : ask_variants(backend.api(), context.get())) {
        ordered_json row{{"operation", answer.operation}, {"shape", answer.shape}};
        row[answer.status == WINNOW_OK ? "variant" : "refused"] = answer.text;
        entry["variants"].push_back(std::move(row));
    }
    return true;
}

bool add_devices(const OpenBackend& opened, const InfoOptions& options, ordered_json& backend) {
    backend["devices"] = ordered_json::array();
    if (!options.device.empty()) {
        ordered_json entry{{"device", options.device}};
        const bool is_fine = add_context(opened, options.device, options, entry);
        backend["devices"].push_back(std::move(entry));
        return is_fine;
    }
    const winnow_api& api = opened.api();
    char message[4096] = "";
    uint32_t count = 0;
    if (const int32_t status = api.device_count(&count, message, sizeof message); status != WINNOW_OK) {
        backend["error"] = std::string(api.status_name(status)) + ": " + message;
        return false;
    }
    bool is_fine = true;
    for (uint32_t index = 0; index < count; ++index) {
        ordered_json entry{{"device", std::to_string(index)}};
        winnow_device_info info{};
        info.struct_size = sizeof info;
        if (api.device_info(index, &info, message, sizeof message) == WINNOW_OK) entry.update(describe(info));
        is_fine = add_context(opened, std::to_string(index), options, entry) && is_fine;
        backend["devices"].push_back(std::move(entry));
    }
    return is_fine;
}

std::string mebibytes(const ordered_json& bytes) { return std::to_string(bytes.get<uint64_t>() >> 20) + " MiB"; }

void print_device(const ordered_json& device, std::ostream& out) {
    out << "  device " << device["device"].get<std::string>();
    if (device.contains("name")) {
        out << ": " << device["name"].get<std::string>() << '\n'
            << "    " << device["type"].get<std::string>() << ", " << device["compute_units"] << " compute units, "
            << mebibytes(device["memory_size"]) << " of memory, " << mebibytes(device["max_allocation_size"])
            << " at most in one buffer\n"
            << "    platform: " << device["platform"].get<std::string>() << ", driver "
            << device["driver_version"].get<std::string>() << ", vendor " << device["vendor"].get<std::string>() << '\n'
            << "    can:";
        for (const auto& name : device["capabilities"]) out << ' ' << name.get<std::string>();
        if (device["capabilities"].empty()) out << " nothing special";
        out << "\n    kernels: shape \"" << device["kernel_shape"].get<std::string>() << "\"";
    }
    out << '\n';
    if (device.contains("error")) out << "    cannot be used: " << device["error"].get<std::string>() << '\n';
    if (device.contains("uuid")) out << "    UUID: " << device["uuid"].get<std::string>() << '\n';
    if (!device.contains("variants")) return;
    for (const auto& text : device["notes"]) out << "    note: " << text.get<std::string>() << '\n';
    for (const auto& row : device["variants"]) {
        std::string shape = row["shape"].get<std::string>();
        shape.resize(std::max<size_t>(shape.size(), 54), ' ');
        out << "      " << shape << ' ';
        if (row.contains("variant"))
            out << row["variant"].get<std::string>() << '\n';
        else
            out << "refused: " << row["refused"].get<std::string>() << '\n';
    }
}

void print(const ordered_json& backends, std::ostream& out) {
    for (const auto& backend : backends) {
        out << "backend " << backend["backend"].get<std::string>();
        if (backend.contains("version"))
            out << ' ' << backend["version"].get<std::string>() << ", ABI " << backend["abi"].get<std::string>() << ", "
                << backend["path"].get<std::string>();
        out << '\n';
        if (backend.contains("error")) out << "  cannot be used: " << backend["error"].get<std::string>() << '\n';
        if (!backend.contains("devices")) continue;
        if (backend["devices"].empty() && !backend.contains("error"))
            out << "  no device: no driver that this backend could use is installed; winnow doctor says what to do\n";
        for (const auto& device : backend["devices"]) print_device(device, out);
    }
}

} // namespace

bool add_backend(const OpenBackend& opened, const InfoOptions& options, ordered_json& backend) {
    const winnow_api& api = opened.api();
    backend["backend"] = api.backend_name;
    backend["version"] = api.backend_version;
    backend["abi"] =
        std::to_string(WINNOW_VERSION_MAJOR(api.version)) + "." + std::to_string(WINNOW_VERSION_MINOR(api.version));
    backend["path"] = opened.path();
    return add_devices(opened, options, backend);
}

int run_info(const InfoOptions& options, std::ostream& out, std::ostream& err) {
    const bool is_default = options.backends.empty();
    const std::vector<std::string> names =
        is_default ? std::vector<std::string>{"opencl", "reference"} : options.backends;
    ordered_json backends = ordered_json::array();
    bool is_fine = true;
    bool any_loaded = false;
    for (const std::string& name : names) {
        ordered_json backend{{"backend", name}};
        bool was_fine = false;
        try {
            was_fine = add_backend(OpenBackend(name), options, backend);
        } catch (const std::runtime_error& error) {
            backend["error"] = error.what();
        }
        const bool was_loaded = backend.contains("path");
        any_loaded = any_loaded || was_loaded;
        // What nobody asked for by name may be missing.
        if (!was_fine && (was_loaded || !is_default)) is_fine = false;
        backends.push_back(std::move(backend));
    }
    if (options.json)
        // What drivers and paths are called need not be UTF-8.
        out << ordered_json{{"backends", std::move(backends)}}.dump(2, ' ', false,
                                                                    ordered_json::error_handler_t::replace)
            << '\n';
    else
        print(backends, out);
    if (!any_loaded) err << "winnow info: no backend could be loaded\n";
    return is_fine && any_loaded ? 0 : 1;
}

} // namespace winnow::tools
