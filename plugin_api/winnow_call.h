/* winnow_call.h - how the functions of the other headers are called and exported: compilers for Windows ask for it.
 * winnow.h includes it.
 */
#ifndef WINNOW_CALL_H
#define WINNOW_CALL_H

/* On every function of a table, every callback and winnow_get_api: called as C does by default, whatever default the
 * options of a compiler for Windows choose (/Gz and /Gv of MSVC, -mrtd of GCC). Other systems have one convention. */
#if defined(_WIN32)
#define WINNOW_CALL __cdecl
#else
#define WINNOW_CALL
#endif

/* Who compiles a backend defines WINNOW_BUILD_BACKEND, so that Windows exports winnow_get_api; a host that links a
 * backend imports it. A host that loads backends, as winnow_loader.h does, uses neither. */
#if !defined(_WIN32)
#define WINNOW_EXPORT __attribute__((visibility("default")))
#elif defined(WINNOW_BUILD_BACKEND)
#define WINNOW_EXPORT __declspec(dllexport)
#else
#define WINNOW_EXPORT __declspec(dllimport)
#endif

#endif /* WINNOW_CALL_H */
