#include "tools/service_manager.h"

#include <systemd/sd-daemon.h>

#include <algorithm>

namespace prefixfs::service_manager {
namespace {

// Who listens is not our concern: a manager that does not take the message is none.
void Tell(const std::string& state, std::string status) {
  std::replace(status.begin(), status.end(), '\n', ' ');  // a new line is another variable
  (void)::sd_notify(0, (state + "STATUS=" + status).c_str());
}

}  // namespace

void TellStarting(const std::string& status) { Tell("", status); }
void TellReady(const std::string& status) { Tell("READY=1\n", status); }
void TellStopping(const std::string& status) { Tell("STOPPING=1\n", status); }

}  // namespace prefixfs::service_manager
