// The execution provider of a session.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "report.hpp"

namespace winnow::ort {

class Provider : public OrtEp {
public:
    // Throws where an option is refused, or the backend has no such device.
    // process_log: for what is to be said once the session, and its logger, are gone.
    Provider(const Runtime& runtime, const OrtSessionOptions* session, const OrtLogger* logger, const Log& process_log);
    ~Provider();
    Provider(const Provider&) = delete;
    Provider& operator=(const Provider&) = delete;

private:
    void set_callbacks();
    void claim(const OrtGraph* graph, OrtEpGraphSupportInfo* info);
    void compile(const OrtGraph** graphs, const OrtNode** fused, size_t count, OrtNodeComputeInfo** infos);
    const AttentionNode& claimed(const OrtGraph* graph) const;
    void begin_run(const OrtRunOptions* options);
    void tell_refused(const std::vector<RefusedNode>& refused) const;
    void expect_computable(const OrtGraph* graph) const;

    const Runtime& runtime_;
    Log log_;
    const Log process_log_;
    const Options options_;
    const Backend backend_;
    SessionCache cache_;
    std::vector<AttentionNode> claims_; // in the order of the graph
    std::vector<RefusedNode> refused_;
    std::vector<std::unique_ptr<ComputedNode>> computed_; // by layer
};

} // namespace winnow::ort
