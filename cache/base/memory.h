// What becomes of work that runs out of memory: it ends, and the daemon goes on.
//
// std::bad_alloc is the one exception that crosses folders: it unwinds what was being done, gives
// back what that held, and is caught where work is handed out: at a request, at a worker, at a
// background thread.
#pragma once

#include <new>

namespace prefixfs {

// Says so in the log, at most every ten seconds, and what can be done about it. Never throws.
void LogNoMemory() noexcept;

// Runs `work`; false if there was no memory for all of it.
template <typename Work>
bool SurvivesNoMemory(const Work& work) {
  try {
    work();
    return true;
  } catch (const std::bad_alloc&) {
    LogNoMemory();
    return false;
  }
}

}  // namespace prefixfs
