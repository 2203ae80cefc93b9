// The types whose rows are converted on the host: those that ggml quantizes without further tables and that Winnow
// does not store. Not every version of ggml has all of them.
#pragma once

#define WINNOW_HOST_CONVERTED_TYPES(each)                                                                              \
    each(GGML_TYPE_Q1_0) each(GGML_TYPE_Q2_0) each(GGML_TYPE_Q2_K) each(GGML_TYPE_Q3_K) each(GGML_TYPE_Q4_K)           \
        each(GGML_TYPE_Q5_K) each(GGML_TYPE_Q6_K) each(GGML_TYPE_IQ4_XS) each(GGML_TYPE_TQ1_0) each(GGML_TYPE_TQ2_0)   \
            each(GGML_TYPE_MXFP4) each(GGML_TYPE_NVFP4)
