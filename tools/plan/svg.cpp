// Memory over context as a picture: one line for each configuration, with its name at its end. Both axes are
// logarithmic.
#include "plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace winnow::tools {

namespace {

// The colours of tools/calibrate/winnow_calibrate/drawing.py, which are told apart with weak colour vision, too.
const char* const colours[] = {"#0072b2", "#d55e00", "#009e73", "#a2559c", "#8c6d00",
                               "#3a3a3a", "#1f9fd6", "#b3002d", "#5b7f00", "#6a4fb3"};

constexpr double width = 900, height = 560, left = 70, right = 640, top = 50, bottom = 500;
constexpr double line_height = 15;  // of names
constexpr size_t longest_name = 32; // that there is room for

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value);
    return text;
}

std::string escaped(const std::string& text) {
    std::string found;
    for (const char each : text) {
        switch (each) {
        case '&': found += "&amp;"; break;
        case '<': found += "&lt;"; break;
        case '>': found += "&gt;"; break;
        case '"': found += "&quot;"; break;
        default: found += static_cast<unsigned char>(each) < 0x20 ? ' ' : each;
        }
    }
    return found;
}

std::string shortened(const std::string& name) {
    if (name.size() <= longest_name) return name;
    size_t end = longest_name - 3;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end; // whole UTF-8 characters
    return name.substr(0, end) + "...";
}

// A logarithmic axis from one number to another, over pixels.
struct Axis {
    double low, high, begin, end;
    double at(double value) const { return begin + (end - begin) * std::log(value / low) / std::log(high / low); }
};

std::string line(double x1, double y1, double x2, double y2, const char* style) {
    return "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) + "\" y2=\"" + number(y2) +
           "\" " + style + "/>\n";
}

std::string words(double x, double y, const char* style, const std::string& text) {
    return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" " + style + ">" + escaped(text) + "</text>\n";
}

std::string axes(const Axis& x, const Axis& y, const Plan& plan) {
    std::string text;
    for (const int64_t context : plan.contexts) {
        if ((context & (context - 1)) != 0) continue;
        const double at = x.at(static_cast<double>(context));
        text += line(at, top, at, bottom, "stroke=\"#e2e2e2\"");
        text += words(at, bottom + 16, "text-anchor=\"middle\"",
                      context < 1024 ? std::to_string(context) : std::to_string(context / 1024) + "k");
    }
    for (double mib = y.low; mib <= y.high * 1.001; mib *= 2) {
        text += line(left, y.at(mib), right, y.at(mib), "stroke=\"#e2e2e2\"");
        text +=
            words(left - 8, y.at(mib) + 4, "text-anchor=\"end\"", mib < 1 ? number(mib) : grouped(std::llround(mib)));
    }
    const double asked = x.at(static_cast<double>(plan.context));
    if (asked >= left && asked <= right)
        text += line(asked, top, asked, bottom, "stroke=\"#666\" stroke-dasharray=\"4 3\"");
    text += words((left + right) / 2, bottom + 36, "text-anchor=\"middle\"", "tokens of a full context");
    text += words(left, top - 10, "", "MiB: cache, and what Winnow adds to the process");
    return text;
}

} // namespace

std::string to_svg(const Plan& plan) {
    uint64_t most = 0, fewest = UINT64_MAX;
    for (const Curve& curve : plan.curves) {
        for (const uint64_t total : curve.totals) {
            most = std::max(most, total);
            if (total != 0) fewest = std::min(fewest, total);
        }
    }
    const auto mib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    const Axis x{static_cast<double>(plan.contexts.front()), static_cast<double>(plan.contexts.back()), left, right};
    const Axis y{std::exp2(std::floor(std::log2(mib(fewest)))), std::exp2(std::ceil(std::log2(mib(most) * 1.0001))),
                 bottom, top};
    struct Name {
        double at, wanted;
        size_t curve;
    };
    std::vector<Name> names;
    std::string lines;
    for (size_t i = 0; i < plan.curves.size(); ++i) {
        const Curve& curve = plan.curves[i];
        const std::string colour = colours[i % std::size(colours)];
        const bool is_plain = curve.name.starts_with("cpu:");
        std::string points;
        double last = bottom;
        for (size_t at = 0; at < curve.totals.size(); ++at) {
            if (curve.totals[at] == 0) continue;
            last = y.at(mib(curve.totals[at]));
            points.append(number(x.at(static_cast<double>(plan.contexts[at]))));
            points.append(1, ',').append(number(last)).append(1, ' ');
        }
        if (points.empty()) continue;
        lines.append("<polyline fill=\"none\" stroke=\"").append(colour).append("\" stroke-width=\"1.8\"");
        lines.append(is_plain ? " stroke-dasharray=\"6 3\"" : "").append(" points=\"").append(points).append("\"/>\n");
        names.push_back({last, last, i});
    }
    // Names stand at the ends of their lines, as near as they can without covering each other.
    std::sort(names.begin(), names.end(), [](const Name& one, const Name& other) { return one.wanted < other.wanted; });
    const double room = line_height * static_cast<double>(names.size());
    double next = std::max(top - 20, names.empty() ? top : std::min(names.front().wanted, height - room));
    for (Name& name : names) next = (name.at = std::max(name.wanted, next)) + line_height;
    next = height - 10;
    for (auto name = names.rbegin(); name != names.rend(); ++name)
        next = (name->at = std::min(name->at, next)) - line_height;
    for (const Name& name : names) {
        const std::string colour = colours[name.curve % std::size(colours)];
        lines +=
            line(right, name.wanted, right + 14, name.at, ("stroke=\"" + colour + "\" stroke-width=\"0.6\"").c_str());
        lines += words(right + 18, name.at + 4, ("fill=\"" + colour + "\"").c_str(),
                       shortened(plan.curves[name.curve].name));
    }
    const std::string title = plan.shape.name.empty() ? plan.shape.architecture : plan.shape.name;
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(width) + ' ' + number(height) +
           "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
           words(left, 20, "font-size=\"15\"", title + ": memory over context") + axes(x, y, plan) + lines + "</svg>\n";
}

} // namespace winnow::tools
