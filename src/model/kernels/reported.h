// How C++ tells Rust of an error: null, or its message, which the caller frees.

#pragma once

#include <cstring>
#include <exception>

namespace pathswarm {

inline char *copied(const char *text) {
    char *copy = strdup(text);
    if (copy == nullptr) std::terminate();
    return copy;
}

template <typename Work>
char *reported(Work work) {
    try {
        work();
        return nullptr;
    } catch (const std::exception &error) {
        return copied(error.what());
    } catch (...) {
        return copied("an unknown error");
    }
}

} // namespace pathswarm
