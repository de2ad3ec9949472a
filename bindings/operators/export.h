// Functions that Python calls by name (python/warpalign/_core/library.py): all others of a library are
// hidden.
#pragma once

#if defined(_WIN32)
#define WARPALIGN_EXPORT extern "C" __declspec(dllexport)
#else
#define WARPALIGN_EXPORT extern "C" __attribute__((visibility("default")))
#endif
