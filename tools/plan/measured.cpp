// Reading the data, and finding the row that is a configuration's.
#include "measured.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "canonical_config.hpp"
#include <nlohmann/json.hpp>

namespace winnow::tools {

namespace {

bool is_quantized(const std::string& type) { return type != "f32" && type != "f16" && type != "bf16"; }

// What `winnow eval` calls llama.cpp's cache of these types as llama.cpp carries it out: it rotates quantized caches
// where the head size is a multiple of 64.
std::string name_as_measured(const Configuration& config, const ModelShape& shape) {
    const bool can_rotate = std::all_of(shape.groups.begin(), shape.groups.end(), [](const LayerGroup& group) {
        return group.k_size % 64 == 0 && group.v_size % 64 == 0;
    });
    const bool matters = is_quantized(config.k) || is_quantized(config.v);
    const std::string where = config.where == Configuration::Where::cpu ? "cpu" : "inplace";
    const bool is_off = matters && !(config.rotates && can_rotate);
    return where + ":k=" + config.k + ",v=" + config.v + (is_off ? ",rotate=off" : "");
}

// What a configuration of Winnow's means for a cache of so many cells, of which its budget may be a share.
struct Meant {
    ggml::CacheMeaning cache;
    int64_t cells;
};

// Whether tokens are attended to as far as queries pick them.
bool recalls(const std::string& config) { return ggml::find_value(config, "recall").has_value(); }

// Whether the budget is a share of the cells, and not bytes.
bool has_share(const std::string& config) { return ggml::value_of(config, "budget").find('/') != std::string::npos; }

// With the cold rows in memory: where they lie makes no difference to what is picked.
std::string with_rows_in_memory(std::string config) {
    const std::optional<ggml::ValueRange> folder = ggml::find_value(config, "recall");
    return folder ? config.replace(folder->begin, folder->size, "host") : config;
}

// The formats in which tokens lie, segment by segment.
std::vector<std::pair<uint32_t, uint32_t>> formats_of(const ggml::CacheMeaning& cache) {
    std::vector<std::pair<uint32_t, uint32_t>> formats;
    for (const ggml::SegmentTokens& segment : cache.segments)
        if (segment.tokens > 0) formats.emplace_back(segment.k_type, segment.v_type);
    return formats;
}

// What a configuration says of layers with formats of their own.
std::vector<std::string> own_formats(const std::string& config) {
    std::vector<std::string> said;
    for (const char* const key : {"fine", "k_fine", "v_fine", "coarse", "k_coarse", "v_coarse"})
        said.push_back(ggml::value_of(config, key));
    return said;
}

// Whether two configurations lose alike: both attend to every token in the same formats, hold the same share of their
// cells, or pick within the same budget.
bool is_alike(const Meant& one, const Meant& other) {
    if (one.cache.evicts != other.cache.evicts || recalls(one.cache.config) != recalls(other.cache.config))
        return false;
    if (recalls(one.cache.config))
        return with_rows_in_memory(one.cache.config) == with_rows_in_memory(other.cache.config) &&
               (has_share(one.cache.config) || one.cells == other.cells);
    const auto formats = formats_of(one.cache);
    if (formats != formats_of(other.cache) || own_formats(one.cache.config) != own_formats(other.cache.config))
        return false;
    if (formats.size() > 2 && (one.cache.config != other.cache.config || one.cells != other.cells))
        return false; // several packed segments, and what is in which may be a matter of ages
    if (!one.cache.evicts) return one.cache.storage_config == other.cache.storage_config;
    const int64_t difference = one.cache.budget_tokens * other.cells - other.cache.budget_tokens * one.cells;
    return one.cache.config == other.cache.config &&
           std::abs(difference) <= std::max(one.cells, other.cells); // shares are rounded
}

} // namespace

Measured::Measured() {
    const auto all = nlohmann::json::parse(measured_json());
    const auto& added = all.at("added");
    added_ = {added.at("in_place_bytes"), added.at("winnow_bytes")};
    added_model_ = added.at("model");
    added_device_ = added.at("device");
    added_command_ = added.at("command");
    const auto& losses = all.at("losses");
    for (const auto& row : losses.at("rows")) {
        losses_.push_back({row.at("name"), row.at("context"), row.at("contexts"), row.at("kld"), row.at("kld_se"),
                           row.at("ppl_increase_percent"), row.at("ppl_increase_se"), row.at("model"), row.at("text"),
                           row.at("part"), losses.at("commands").at(row.at("results").get<std::string>()),
                           row.value("has_key_bias", false)});
    }
}

std::optional<Loss> Measured::find(const Configuration& config, int64_t context, const Costs& costs,
                                   const ModelShape& shape,
                                   const std::function<bool(const std::string&)>& is_model) const {
    const bool is_winnow = config.where == Configuration::Where::winnow;
    const std::string name = is_winnow ? "" : name_as_measured(config, shape);
    std::optional<Meant> meant;
    if (is_winnow) meant = Meant{costs.meaning(config.kv, context), costs.cells(context)};
    const auto is_its = [&](const Loss& loss) {
        if (loss.has_key_bias != shape.has_key_bias) return false;
        if (!is_winnow) return loss.name == name;
        if (parse_configuration(loss.name).where != Configuration::Where::winnow) return false;
        try {
            return is_alike(*meant, {costs.meaning(loss.name, loss.context), costs.cells(loss.context)});
        } catch (const std::runtime_error&) { // nothing that this model could have
            return false;
        }
    };
    const auto distance = [&](const Loss& loss) {
        const double ratio = static_cast<double>(loss.context) / static_cast<double>(context);
        return std::pair(!is_model(loss.model), std::abs(std::log(ratio)));
    };
    std::optional<Loss> best;
    for (const Loss& loss : losses_) {
        if (is_its(loss) && (!best || distance(loss) < distance(*best))) best = loss;
    }
    return best;
}

} // namespace winnow::tools
