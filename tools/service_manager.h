// What a service manager such as systemd is told of the daemon, by sd_notify(3). Where there is
// none, which is where $NOTIFY_SOCKET is not set, nothing happens.
#pragma once

#include <string>

namespace prefixfs::service_manager {

// The daemon starts; `status` says with what it is busy.
void TellStarting(const std::string& status);
// The mount answers.
void TellReady(const std::string& status);
// It is about to go, because somebody asked for it or because it was unmounted.
void TellStopping(const std::string& status);

}  // namespace prefixfs::service_manager
