// The report as JSON. Everything of this host that is JSON is written here.
#pragma once

#include <string>
#include <vector>

#include "report.hpp"

namespace winnow::ggml {

// What a report is made of.
struct ReportContents {
    const char* ggml_version;
    const winnow_api& api;
    const winnow_device_info& device;
    const Totals& totals;                    // of contexts that ended and of those in use
    const std::vector<CacheFigures>& caches; // that ended
    const std::vector<CacheFigures>& living; // as they were last seen
    const std::vector<InPlaceCache>& in_place;
};
std::string to_json(const ReportContents& contents);
// An array of the objects that the report has for caches.
std::string to_json(const std::vector<CacheFigures>& caches);

} // namespace winnow::ggml
